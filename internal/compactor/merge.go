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

// restShare is how much longer than a batch of merging the pause after it is: four
// fifths of the time, the database and the leader's node work for others alone.
const restShare = 4

// A crash of the server takes back both what was deleted and what was added for
// it, so the commit need not wait for the disk.
const hurriedSQL = `SELECT set_config('synchronous_commit', 'off', true)`

// merge packs the output of attempts that are over, batch by batch.
func (p *pass) merge(ctx context.Context) error {
	done := jobstore.Merged{}
	defer func() {
		p.record.Chunks, p.record.Packs = done.Chunks, done.Packs
		p.record.TextBytes, p.record.PackBytes = done.TextBytes, done.PackBytes
	}()
	for from := (jobstore.RunKey{}); ; {
		start := time.Now()
		next, merged, err := p.mergeBatch(ctx, from)
		if errors.Is(err, leaderstore.ErrDeposed) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			return fmt.Errorf("merge the output of jobs from %d on: %w", from.JobID, err)
		}
		done.Add(merged)
		if next == (jobstore.RunKey{}) {
			break
		}
		from = next
		if err := p.pause(ctx, max(p.opts.Pause, restShare*time.Since(start))); err != nil {
			return err
		}
	}
	if done.Chunks > 0 {
		p.opts.Logger.DebugContext(ctx, "output merged", "term", p.fence.Term,
			"chunks", done.Chunks, "packs", done.Packs, "text_bytes", done.TextBytes, "pack_bytes", done.PackBytes)
	}
	return skipped(done.Skipped)
}

// shownDamages is how many damaged attempts a pass names.
const shownDamages = 5

// skipped is nil when everything could be merged.
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

func (p *pass) mergeBatch(ctx context.Context, from jobstore.RunKey) (next jobstore.RunKey, merged jobstore.Merged, err error) {
	err = p.do(ctx, func(tx pgx.Tx, now time.Time) error {
		if _, err := tx.Exec(ctx, hurriedSQL); err != nil {
			return err
		}
		next, merged, err = jobstore.Merge(ctx, tx, from, now.Add(-p.opts.Quiet), p.opts.Batch)
		if merged.Chunks > 0 {
			failpoint.Hit("compactor/before-commit")
		}
		return err
	})
	failpoint.Hit("compactor/after-commit")
	return next, merged, err
}
