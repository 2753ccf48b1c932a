package watchdog

import "time"

const (
	// clockInterval is how often the clock is read.
	clockInterval = 250 * time.Millisecond
	// maxCounted is the most that one reading adds. The rest of the interval was
	// not available to the process: the system ran other processes, or the process
	// was stopped.
	maxCounted = clockInterval + clockInterval/5
)

// runtimeClock counts the time that was available to the process. It is read at
// every interval; a late reading shows that the process waited for a processor.
type runtimeClock struct {
	readAt  time.Time
	counted time.Duration // until readAt
}

// advance records a reading.
func (c *runtimeClock) advance(now time.Time) { c.counted, c.readAt = c.runtime(now), now }

// runtime returns the time that was available to the process until now.
func (c *runtimeClock) runtime(now time.Time) time.Duration {
	return c.counted + min(max(now.Sub(c.readAt), 0), maxCounted)
}

// starved reports whether the next reading is late.
func (c *runtimeClock) starved(now time.Time) bool { return now.Sub(c.readAt) > maxCounted }
