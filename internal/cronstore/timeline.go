package cronstore

import (
	"fmt"
	"iter"
	"time"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// Due is a tick and what stands in its way.
type Due struct {
	At time.Time
	// SkippedDST: the local time is left out on that day.
	SkippedDST bool
	// Paused: the cron was paused at that time.
	Paused bool
	// Removed: the cron left the configuration before the tick was recorded.
	Removed bool
}

// Timeline is when a cron was and will be due: its eras, then its present
// timing.
type Timeline struct {
	stretches []stretch
}

// stretch is a piece of time with one timing. It begins where the one before it
// ended.
type stretch struct {
	schedule *cronexpr.Schedule
	paused   bool
	removed  bool
	until    time.Time // zero: open
}

// Timeline parses the cron's timings.
func (c *Cron) Timeline() (*Timeline, error) {
	t := &Timeline{}
	for _, era := range c.Earlier {
		if err := t.add(c.Name, era); err != nil {
			return nil, err
		}
	}
	for _, era := range c.present(c.RemovedAt) {
		if err := t.add(c.Name, era); err != nil {
			return nil, err
		}
	}
	if !c.RemovedAt.IsZero() {
		for i := range t.stretches {
			t.stretches[i].removed = true
		}
	}
	return t, nil
}

// Timeline parses the timing of a definition, as if it were and had been in
// force always.
func (s Spec) Timeline(name string) (*Timeline, error) {
	timing := s.Timing()
	timing.Paused = false
	t := &Timeline{}
	return t, t.add(name, Era{Timing: timing})
}

// present returns the timing in force as eras that end at until: two where the
// cron was paused on the way.
func (c *Cron) present(until time.Time) []Era {
	now := Era{Timing: c.Spec.Timing(), Until: until}
	if c.PausedAt.IsZero() {
		return []Era{now}
	}
	before := now
	before.Until = c.PausedAt
	now.Paused = true
	return []Era{before, now}
}

func (t *Timeline) add(name string, era Era) error {
	parsed, err := parse(name, era.Timing)
	if err != nil {
		return fmt.Errorf("cron %s: %w", name, err)
	}
	t.stretches = append(t.stretches, stretch{parsed, era.Paused, era.Removed, era.Until})
	return nil
}

func parse(name string, timing Timing) (*cronexpr.Schedule, error) {
	return cronexpr.Parse(timing.Schedule, cronexpr.Options{
		Name: name, Timezone: timing.Timezone, DSTMissing: timing.DSTMissing, DSTRepeated: timing.DSTRepeated,
	})
}

// Paused says whether ticks of the future are skipped because the cron is
// paused.
func (t *Timeline) Paused() bool { return t.stretches[len(t.stretches)-1].paused }

// Manual says that the cron is never due by itself.
func (t *Timeline) Manual() bool { return t.stretches[len(t.stretches)-1].schedule.Manual() }

// Next returns the first due tick after an instant; false if there is none. It
// passes over ticks that daylight saving leaves out: they are recorded with the
// one that follows.
func (t *Timeline) Next(after time.Time) (time.Time, bool) {
	for _, s := range t.stretches {
		next, ok := s.schedule.Next(after)
		if ok && (s.until.IsZero() || !next.After(s.until)) {
			return next, true
		}
		if s.until.After(after) {
			after = s.until
		}
	}
	return time.Time{}, false
}

// Ticks yields the due ticks in (after, until], in order.
func (t *Timeline) Ticks(after, until time.Time) iter.Seq[Due] {
	return func(yield func(Due) bool) {
		for _, s := range t.stretches {
			end := until
			if !s.until.IsZero() && s.until.Before(end) {
				end = s.until
			}
			if !end.After(after) {
				continue
			}
			for tick := range s.schedule.Ticks(after, end) {
				if !yield(Due{tick.At, tick.SkippedDST, s.paused, s.removed}) {
					return
				}
			}
			after = end
		}
	}
}

// reaches are how far back Before looks, the nearest first.
var reaches = []time.Duration{time.Minute, time.Hour, 25 * time.Hour, 32 * 24 * time.Hour, 367 * 24 * time.Hour, 9 * 366 * 24 * time.Hour}

// Before returns the last due tick before an instant; false if there is none
// within nine years.
func (t *Timeline) Before(at time.Time) (last Due, ok bool) {
	for _, reach := range reaches {
		for tick := range t.Ticks(at.Add(-reach), at.Add(-time.Nanosecond)) {
			last, ok = tick, true
		}
		if ok {
			break
		}
	}
	return last, ok
}

// At says whether an instant is a due tick, and which.
func (t *Timeline) At(at time.Time) (Due, bool) {
	for tick := range t.Ticks(at.Add(-time.Nanosecond), at) {
		if tick.At.Equal(at) {
			return tick, true
		}
	}
	return Due{}, false
}

// any says whether a tick is due in (after, until].
func (t *Timeline) any(after, until time.Time) bool {
	for range t.Ticks(after, until) {
		return true
	}
	return false
}
