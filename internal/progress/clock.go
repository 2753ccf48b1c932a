package progress

import "time"

const (
	// tick is how often the clock is read.
	tick = 250 * time.Millisecond
	// granted is the most that one reading adds. What is beyond that the process did
	// not have: the system let others run, or the process was stopped.
	granted = tick + tick/5
)

// clock counts the time that the process had. It is read every tick; a reading that
// comes late shows that the process waited for a processor meanwhile.
type clock struct {
	read    time.Time
	counted time.Duration // until it was read
}

// advance reads the clock.
func (c *clock) advance(now time.Time) { c.counted, c.read = c.had(now), now }

// had is the time that the process has had at now.
func (c *clock) had(now time.Time) time.Duration {
	return c.counted + min(max(now.Sub(c.read), 0), granted)
}

// starved says that the next reading is late.
func (c *clock) starved(now time.Time) bool { return now.Sub(c.read) > granted }
