package compactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/failpoint"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// restBesideOthers is the ratio of the pause after a merge batch to the duration of
// the batch while other sessions work. They have nine tenths of the time, and
// pauses grow with the batches. Otherwise the pause is as long as the batch.
const restBesideOthers = 9

// othersSQL is whether another session is working. A session that waits for a lock
// is not: deputies always do.
const othersSQL = `
SELECT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
      AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Lock')`

// A crash of the server undoes both the deletes and the inserts of a batch, so the
// commit does not have to wait for the disk.
const hurriedSQL = `SELECT set_config('synchronous_commit', 'off', true)`

// merge packs the output of ended attempts, batch by batch.
func (p *pass) merge(ctx context.Context) error {
	done := jobstore.Merged{}
	defer func() {
		p.record.Chunks, p.record.Packs = done.Chunks, done.Packs
		p.record.TextBytes, p.record.PackBytes = done.TextBytes, done.PackBytes
	}()
	for from, tries := (jobstore.RunKey{}), 1; ; {
		start, most := time.Now(), p.merging.Next()
		next, merged, others, err := p.mergeBatch(ctx, from, most)
		if errors.Is(err, leaderstore.ErrDeposed) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			p.merging.Failed()
			if tries++; tries <= batchTries && most > 1 {
				continue
			}
			return fmt.Errorf("merge the output of jobs from %d on: %w", from.JobID, err)
		}
		tries = 1
		p.merging.Done(int(merged.Chunks), time.Since(start), 0)
		done.Add(merged)
		if next == (jobstore.RunKey{}) {
			break
		}
		from = next
		if err := p.pause(ctx, p.rest(time.Since(start), others)); err != nil {
			return err
		}
	}
	if done.Chunks > 0 {
		p.opts.Logger.DebugContext(ctx, "output merged", "term", p.fence.Term,
			"chunks", done.Chunks, "packs", done.Packs, "text_bytes", done.TextBytes, "pack_bytes", done.PackBytes)
	}
	return skipped(done.Skipped)
}

// rest returns the pause after a batch.
func (p *pass) rest(batch time.Duration, others bool) time.Duration {
	if others {
		batch *= restBesideOthers
	}
	return max(p.opts.Pause, batch)
}

// shownDamages bounds the damaged attempts that a pass lists.
const shownDamages = 5

// skipped returns an error that lists the damaged attempts; nil if there are none.
func skipped(damages []*jobstore.DamagedError) error {
	var errs []error
	for _, damage := range damages[:min(len(damages), shownDamages)] {
		errs = append(errs, damage)
	}
	if len(damages) > shownDamages {
		errs = append(errs, fmt.Errorf("and %d more", len(damages)-shownDamages))
	}
	return errors.Join(errs...)
}

// mergeBatch also returns whether other sessions were working when it began.
func (p *pass) mergeBatch(ctx context.Context, from jobstore.RunKey, most int) (
	next jobstore.RunKey, merged jobstore.Merged, others bool, err error,
) {
	err = p.do(ctx, func(tx pgx.Tx, now time.Time) error {
		if _, err := tx.Exec(ctx, hurriedSQL); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, othersSQL).Scan(&others); err != nil {
			return fmt.Errorf("look for others at work: %w", err)
		}
		next, merged, err = jobstore.New(tx).Merge(ctx, from, now.Add(-p.opts.Quiet), most)
		if merged.Chunks > 0 {
			failpoint.Hit("compactor/before-commit")
		}
		return err
	})
	failpoint.Hit("compactor/after-commit")
	return next, merged, others, err
}
