// Package starvation measures how much time the machine keeps from the node: a
// goroutine that sleeps for a moment wakes later than that when there is no processor
// for it. Operators see the sum as a metric, and one line a minute while it is much.
package starvation

import (
	"context"
	"log/slog"
	"time"
)

const (
	// tick is how often the meter wakes.
	tick = 500 * time.Millisecond
	// slack is how late it may wake on a machine that is merely busy.
	slack = 100 * time.Millisecond
	// every is how often a line is written at most, and much the part of that time
	// that must have been kept from the node.
	every = time.Minute
	much  = 0.1
)

// Meter measures the starvation of one process.
type Meter struct {
	// Add takes in, in seconds, how long the process had to wait; required.
	Add    func(seconds float64)
	Logger *slog.Logger
}

// Run measures until ctx ends, and then returns nil.
func (m Meter) Run(ctx context.Context) error {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	sum := tally{began: time.Now()}
	for slept := time.Now(); ; slept = time.Now() {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		now := time.Now()
		timer.Reset(tick)
		if late := now.Sub(slept) - tick; late > slack {
			m.Add(late.Seconds())
			sum.add(late)
		}
		if past, over := sum.over(now); over {
			if sum.isMuch(past) {
				m.Logger.WarnContext(ctx, "the machine has too little processor time for this node: work is late, and roles may change hands",
					"waited", sum.starved.Round(tick/50), "longest", sum.longest.Round(tick/50), "of", past.Round(time.Second))
			}
			sum = tally{began: now}
		}
	}
}

// tally is what was measured since it began.
type tally struct {
	began            time.Time
	starved, longest time.Duration
}

func (t *tally) add(late time.Duration) {
	t.starved, t.longest = t.starved+late, max(t.longest, late)
}

// over says whether it is time for a line.
func (t *tally) over(now time.Time) (past time.Duration, over bool) {
	past = now.Sub(t.began)
	return past, past >= every
}

// isMuch says whether the line is worth it.
func (t *tally) isMuch(past time.Duration) bool { return t.starved.Seconds() >= much*past.Seconds() }
