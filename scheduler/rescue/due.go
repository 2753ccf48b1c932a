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

	"github.com/forge-scheduler/forge/leaderstore"
)

// dueLook is the longest pause between two looks for the next due job: a job
// inserted with a sooner time is late by at most that.
const dueLook = time.Second

// schedule makes River's scheduled and retryable jobs available at their time.
type schedule struct {
	pool  *pgxpool.Pool
	fence leaderstore.Fence
}

func (s *schedule) step(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	next, err := nextDue(ctx, s.pool)
	if err != nil || next > 0 {
		return min(next, dueLook), err
	}
	_, err = s.release(ctx)
	return 0, err // there may be more, and the next one's time is not known
}

// release makes one batch of due jobs available, by the database's clock.
func (s *schedule) release(ctx context.Context) (released int, err error) {
	err = s.fence.Do(ctx, s.pool, func(tx pgx.Tx, now time.Time) error {
		executor := riverpgxv5.New(s.pool).UnwrapExecutor(tx)
		results, err := executor.JobSchedule(ctx, &riverdriver.JobScheduleParams{Max: batch, Now: &now})
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
