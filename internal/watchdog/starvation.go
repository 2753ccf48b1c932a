package watchdog

import (
	"context"
	"log/slog"
	"time"
)

const (
	// starvationInterval is the interval of measurements.
	starvationInterval = 500 * time.Millisecond
	// lateTolerance is how late a measurement may be on a machine that is merely
	// busy.
	lateTolerance = 100 * time.Millisecond
	// logInterval is the minimum time between two log lines. A line is logged if the
	// process waited for at least logShare of that time.
	logInterval = time.Minute
	logShare    = 0.1
)

// StarvationMeter measures how long one process waits for a processor.
type StarvationMeter struct {
	// Add records how long the process had to wait, in seconds; required.
	Add    func(seconds float64)
	Logger *slog.Logger
}

// Run measures until ctx ends, and then returns nil.
func (m StarvationMeter) Run(ctx context.Context) error {
	timer := time.NewTimer(starvationInterval)
	defer timer.Stop()
	sum := sample{began: time.Now()}
	for slept := time.Now(); ; slept = time.Now() {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		now := time.Now()
		timer.Reset(starvationInterval)
		if late := now.Sub(slept) - starvationInterval; late > lateTolerance {
			m.Add(late.Seconds())
			sum.add(late)
		}
		if past, over := sum.elapsed(now); over {
			if sum.exceedsShare(past) {
				m.Logger.WarnContext(ctx, "the machine has too little processor time for this node: work is delayed, and leases may expire",
					"waited", sum.starved.Round(starvationInterval/50), "longest", sum.longest.Round(starvationInterval/50), "of", past.Round(time.Second))
			}
			sum = sample{began: now}
		}
	}
}

// sample holds the measurements since it began.
type sample struct {
	began            time.Time
	starved, longest time.Duration
}

func (t *sample) add(late time.Duration) {
	t.starved, t.longest = t.starved+late, max(t.longest, late)
}

// elapsed reports whether the next log line is due.
func (t *sample) elapsed(now time.Time) (past time.Duration, over bool) {
	past = now.Sub(t.began)
	return past, past >= logInterval
}

// exceedsShare reports whether the process waited long enough for a log line.
func (t *sample) exceedsShare(past time.Duration) bool {
	return t.starved.Seconds() >= logShare*past.Seconds()
}
