package aggregator

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/watchdog"
)

// roll writes the windows that have ended, each in its own transaction: after a
// time without a leader there may be many.
func (t *tenure) roll(ctx context.Context, now time.Time) error {
	// No further sum is written for a window that has ended by the database's
	// clock: this term sums later, and other terms are fenced.
	for _, step := range Steps {
		for ctx.Err() == nil && !t.rolled[step].Add(time.Duration(step)).After(now) {
			watchdog.Extend(ctx, longSum)
			end, err := t.rollNext(ctx, step, now)
			if err != nil {
				return err
			}
			if end.IsZero() { // check again when the next window can have ended
				t.rolled[step] = step.Start(now)
				break
			}
			t.rolled[step] = end
		}
	}
	return nil
}

// rollNext writes the next window of a step; the zero time means that none has
// ended. It reads first, so that the transaction is as short as possible: the
// server ends a transaction that is idle because its process waits for a processor.
func (t *tenure) rollNext(ctx context.Context, step Step, now time.Time) (end time.Time, err error) {
	from := t.rolled[step]
	if from.IsZero() {
		last, err := NewStore(t.db).Last(ctx, step)
		if err != nil {
			return time.Time{}, err
		}
		if !last.IsZero() {
			from = last.Add(time.Duration(step))
		}
	}
	next, err := NewStore(t.db).Next(ctx, step, from, now, holds(t.opts.Interval))
	if err != nil || next.End.IsZero() {
		return time.Time{}, err
	}
	err = t.fence.Do(ctx, t.db, func(tx pgx.Tx, _ time.Time) error { return NewStore(tx).Write(ctx, next) })
	return next.End, err
}

// holds returns how long a sum is valid: until it should have been written again.
func holds(interval time.Duration) time.Duration { return max(fullInterval, interval) + interval }
