package checker

import (
	"slices"
	"time"
)

// Rule is a schedule that can be asked about any second, and about nothing else:
// slow, and too simple to be wrong.
type Rule struct {
	// Every counts from the Unix epoch; with it the fields mean nothing.
	Every time.Duration
	// The values that a clock on a wall in Zone may show; nil: any.
	Seconds, Minutes, Hours []int
	Zone                    *time.Location // nil: UTC
}

// Covers says whether the rule holds at an instant.
func (r *Rule) Covers(at time.Time) bool {
	if at.Nanosecond() != 0 {
		return false
	}
	if r.Every > 0 {
		return at.Unix()%int64(r.Every/time.Second) == 0
	}
	zone := r.Zone
	if zone == nil {
		zone = time.UTC
	}
	hour, minute, second := at.In(zone).Clock()
	return holds(r.Seconds, second) && holds(r.Minutes, minute) && holds(r.Hours, hour)
}

func holds(allowed []int, value int) bool { return allowed == nil || slices.Contains(allowed, value) }

// due tries every second of the cron's time.
func (c *Cron) due() []time.Time {
	var ticks []time.Time
	for at := c.Since.UTC().Truncate(time.Second); at.Before(c.Until); at = at.Add(time.Second) {
		if at.After(c.Since) && c.Rule.Covers(at) {
			ticks = append(ticks, at)
		}
	}
	return ticks
}
