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

// rollNext writes the next window of a step; zero: none is over. It reads first, and
// then has the shortest of transactions: the server ends one whose process has to wait
// for the machine in its midst.
func (t *tenure) rollNext(ctx context.Context, step rollupstore.Step, now time.Time) (end time.Time, err error) {
	from := t.rolled[step]
	if from.IsZero() {
		last, err := rollupstore.Last(ctx, t.db, step)
		if err != nil {
			return time.Time{}, err
		}
		if !last.IsZero() {
			from = last.Add(time.Duration(step))
		}
	}
	next, err := rollupstore.Next(ctx, t.db, step, from, now, holds(t.opts.Interval))
	if err != nil || next.End.IsZero() {
		return time.Time{}, err
	}
	err = t.fence.Do(ctx, t.db, func(tx pgx.Tx, _ time.Time) error { return next.Write(ctx, tx) })
	return next.End, err
}

// holds is how long a sum holds: until it should have been written again.
func holds(interval time.Duration) time.Duration { return max(fullInterval, interval) + interval }
