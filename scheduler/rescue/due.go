package rescue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

// dueCheckInterval is the maximum pause between two checks for the next due job. It
// exceeds the interval of the node monitor, whose checks include this one. A job that is
// inserted with an earlier time is late by at limit a second, or by dueCheckInterval while
// the node monitor is busy.
const dueCheckInterval = 1500 * time.Millisecond

// lockedPause is the pause if transactions of other sessions have locked all due jobs, as an
// enqueue does that gives a waiting job its arguments.
const lockedPause = 100 * time.Millisecond

// dueReleaser makes River's scheduled and retryable jobs available when they are due, and
// resumes queues whose pauses end.
type dueReleaser struct {
	pool  *pgxpool.Pool
	fence leaderstore.Fence
	size  *postgres.BatchSize
	// nextDue receives the time until the next due job from the node monitor's checks.
	nextDue chan time.Duration
}

func (r *dueReleaser) step(ctx context.Context) (time.Duration, error) {
	checkCtx, cancel := context.WithTimeout(ctx, stepTimeout)
	next, err := jobstore.New(r.pool).NextDue(checkCtx)
	cancel()
	if err != nil || next > 0 {
		return min(next, dueCheckInterval), err
	}
	released, err := r.size.Do(ctx, stepTimeout, r.release)
	if err == nil && released == 0 {
		return lockedPause, nil
	}
	return 0, err // more jobs may be due, and the next due time is unknown
}

// piggyback adds the query for the next due job to a check of the node monitor.
func (r *dueReleaser) piggyback(batch *pgx.Batch) {
	jobstore.BatchNextDue(batch, func(next time.Duration) {
		select {
		case r.nextDue <- next:
		default: // the previous result was not read yet: a check is running
		}
	})
}

// rest waits until the next job is due, at limit until the next check is due.
func (r *dueReleaser) rest(ctx context.Context, pause time.Duration) bool {
	at, known := time.Now().Add(pause), pause < dueCheckInterval
	timer := time.NewTimer(pause)
	defer timer.Stop()
	watchdog.Pause(ctx)
	defer watchdog.Report(ctx)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case next := <-r.nextDue:
			soon := time.Now().Add(min(next, dueCheckInterval))
			if known && soon.After(at) { // a result that is older than our own
				continue
			}
			at, known = soon, next < dueCheckInterval
			timer.Reset(time.Until(at))
		}
	}
}

// maxEndedPauses is how many queues one transaction resumes.
const maxEndedPauses = 100

// release makes one batch of jobs available that are due by the database's clock, and ends the
// pauses of queues. If the unique key of a due job is busy, it first does that without the jobs
// that take a unique key.
func (r *dueReleaser) release(ctx context.Context, limit int) (released int, err error) {
	released, err = r.releaseWith(ctx, limit, (*jobstore.Store).ReleaseDue)
	if !jobstore.IsKeyBusy(err) {
		return released, err
	}
	if released, err = r.releaseWith(ctx, limit, (*jobstore.Store).ReleaseKeepingKeys); err != nil {
		return 0, err
	}
	took, err := r.releaseWith(ctx, limit, (*jobstore.Store).ReleaseTakingKeys)
	return released + took, err
}

// releaseWith ends pauses and makes jobs available in one fenced transaction.
func (r *dueReleaser) releaseWith(ctx context.Context, limit int, release func(s *jobstore.Store, ctx context.Context, now time.Time, limit int) (int, error)) (released int, err error) {
	err = r.fence.Do(ctx, r.pool, func(tx pgx.Tx, now time.Time) error {
		if _, err := jobstore.New(tx).EndPauses(ctx, now, maxEndedPauses); err != nil {
			return err
		}
		released, err = release(jobstore.New(tx), ctx, now, limit)
		return err
	})
	return released, err
}
