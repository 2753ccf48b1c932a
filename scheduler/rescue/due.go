package rescue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/forge-scheduler/forge/internal/batchsize"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

// dueLook is the longest pause between two looks for the next due job. It is longer
// than the patrol takes between two of its own, with which a look goes along: a job
// inserted with a sooner time is late by a second at most, and by this while the
// patrol has its hands full.
const dueLook = 1500 * time.Millisecond

// schedule makes River's scheduled and retryable jobs available at their time.
type schedule struct {
	pool  *pgxpool.Pool
	fence leaderstore.Fence
	size  *batchsize.Size
	// coming has how soon the next job is due by the patrol's last look.
	coming chan time.Duration
}

func (s *schedule) step(ctx context.Context) (time.Duration, error) {
	looking, cancel := context.WithTimeout(ctx, stepTimeout)
	next, err := nextDue(looking, s.pool)
	cancel()
	if err != nil || next > 0 {
		return min(next, dueLook), err
	}
	_, err = s.size.Do(ctx, stepTimeout, s.release)
	return 0, err // there may be more, and the next one's time is not known
}

// ride adds a look to the patrol's.
func (s *schedule) ride(batch *pgx.Batch) {
	batch.Queue(nextDueSQL).QueryRow(func(row pgx.Row) error {
		next, err := scanDue(row)
		if err != nil {
			return err
		}
		select {
		case s.coming <- next:
		default: // the last one was not taken yet: a look is under way
		}
		return nil
	})
}

// rest waits until the next job is due, and no longer than until somebody should
// have looked.
func (s *schedule) rest(ctx context.Context, pause time.Duration) bool {
	at, known := time.Now().Add(pause), pause < dueLook
	timer := time.NewTimer(pause)
	defer timer.Stop()
	progress.Park(ctx)
	defer progress.Report(ctx)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case next := <-s.coming:
			soon := time.Now().Add(min(next, dueLook))
			if known && soon.After(at) { // a look that was under way longer than our own
				continue
			}
			at, known = soon, next < dueLook
			timer.Reset(time.Until(at))
		}
	}
}

// release makes one batch of due jobs available, by the database's clock.
func (s *schedule) release(ctx context.Context, most int) (released int, err error) {
	err = s.fence.Do(ctx, s.pool, func(tx pgx.Tx, now time.Time) error {
		executor := riverpgxv5.New(s.pool).UnwrapExecutor(tx)
		results, err := executor.JobSchedule(ctx, &riverdriver.JobScheduleParams{Max: most, Now: &now})
		if err != nil {
			return fmt.Errorf("make due jobs available: %w", err)
		}
		released = len(results)
		return notifyQueues(ctx, tx, queuesOf(results))
	})
	return released, err
}

// queuesOf names the queues that have new available jobs. A job that lost to
// another of the same unique key was discarded.
func queuesOf(results []*riverdriver.JobScheduleResult) []string {
	var queues []string
	for _, result := range results {
		if !result.ConflictDiscarded {
			queues = append(queues, result.Job.Queue)
		}
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}
