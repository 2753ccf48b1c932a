package aggregator

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/internal/rollupstore"
)

// roll writes the windows that are over, each in a transaction of its own: after
// a time without a leader there may be many.
func (t *tenure) roll(ctx context.Context, now time.Time) error {
	// Nobody writes another sum of a window that is over by the database's clock:
	// this term sums later, and others are fenced.
	for _, step := range rollupstore.Steps {
		for ctx.Err() == nil && !t.rolled[step].Add(time.Duration(step)).After(now) {
			progress.Allow(ctx, longSum)
			end, err := t.rollNext(ctx, step, now)
			if err != nil {
				return err
			}
			if end.IsZero() { // look again when the next can be over
				t.rolled[step] = step.Start(now)
				break
			}
			t.rolled[step] = end
		}
	}
	return nil
}

// rollNext writes the next window of a step; zero: none is over.
func (t *tenure) rollNext(ctx context.Context, step rollupstore.Step, now time.Time) (end time.Time, err error) {
	err = t.fence.Do(ctx, t.db, func(tx pgx.Tx, _ time.Time) error {
		from := t.rolled[step]
		if from.IsZero() {
			last, err := rollupstore.Last(ctx, tx, step)
			if err != nil {
				return err
			}
			if !last.IsZero() {
				from = last.Add(time.Duration(step))
			}
		}
		end, err = rollupstore.Roll(ctx, tx, step, from, now, holds(t.opts.Interval))
		return err
	})
	return end, err
}

// holds is how long a sum holds: until it should have been written again.
func holds(interval time.Duration) time.Duration { return max(fullInterval, interval) + interval }
