package cronstore

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// LockConfigured locks the row of a configured cron, so that no leader records its
// ticks before the transaction ends, and returns it with the database's clock.
func (s *Store) LockConfigured(ctx context.Context, name string) (Cron, time.Time, error) {
	found, now, err := s.lockCrons(ctx, []string{name})
	if err != nil {
		return Cron{}, now, err
	}
	cron, ok := found[name]
	if !ok || !cron.RemovedAt.IsZero() {
		return Cron{}, now, fmt.Errorf("cron %s: %w", name, ErrNotFound)
	}
	return cron, now, nil
}

// manual has no ticks: the definition of a period in which a cron was not configured.
var manual = Spec{Schedule: "@manual", Timezone: "UTC"}

// begin returns a new cron: its timing starts now.
func begin(name string, spec Spec, now time.Time) Cron {
	c := Cron{Name: name, Spec: spec, SpecHash: specHash(spec), Watermark: now}
	c.NextTick = c.next()
	return c
}

// revise gives a cron another definition. A changed timing starts now. A cron that
// comes back with its earlier timing continues from its removal.
func revise(old Cron, spec Spec, now time.Time) Cron {
	same := old.Spec.sameTiming(spec)
	var c Cron
	switch {
	case same && old.RemovedAt.IsZero():
		old.Spec, old.SpecHash = spec, specHash(spec)
		return old
	case same:
		c = restore(old, spec.CatchUpSpan.Std(), now)
	default:
		c = conclude(old, now)
	}
	c.Spec, c.SpecHash = spec, specHash(spec)
	c.NextTick = c.next()
	return c
}

// pause pauses a cron: ticks that were due before now still fire.
func pause(old Cron, now time.Time) Cron {
	old.PausedAt = now
	old.NextTick = old.next()
	return old
}

// resume ends a pause, by hand or by the file: ticks that were due during it are
// recorded and not fired. The hash of the file is kept, so that only an edit of the
// cron pauses it again.
func resume(old Cron, now time.Time) Cron {
	c := conclude(old, now)
	c.PausedAt, c.Spec.Paused = time.Time{}, false
	c.NextTick = c.next()
	return c
}

// retire removes a cron from the configuration. Pending ticks will be recorded, and
// not fired.
func retire(old Cron, now time.Time) Cron {
	old.RemovedAt = now
	old.NextTick = old.next()
	return old
}

// restore brings a removed cron back with its earlier timing. Ticks since the last
// recorded one are left to the cron's policies, as after an outage. Time further
// back than the window in which ticks are caught up has no ticks: the cron was not
// configured then.
func restore(old Cron, window time.Duration, now time.Time) Cron {
	c := old
	c.Earlier, c.RemovedAt = nil, time.Time{}
	// A removed cron has no ticks after its removal, even if the ledger continues.
	c.Watermark = earliest(old.Watermark, old.RemovedAt)
	for _, era := range append(old.Earlier, old.present(old.RemovedAt)...) {
		if era.Until.After(c.Watermark) {
			c.Earlier = append(c.Earlier, era)
		}
	}
	if reach := now.Add(-window); reach.After(old.RemovedAt) {
		c.Earlier = append(c.Earlier, Era{Spec: manual, Until: reach})
	}
	for _, era := range old.present(now) {
		era.Unconfigured = true
		c.Earlier = append(c.Earlier, era)
	}
	if timeline, err := c.Timeline(); err != nil || !timeline.any(c.Watermark, now) {
		c.Earlier, c.Watermark = nil, latest(old.Watermark, now)
	}
	return c
}

// conclude ends the timing in force at now: the watermark moves there, unless ticks
// are pending, which keep their timing as eras.
func conclude(old Cron, now time.Time) Cron {
	c := old
	c.Earlier, c.RemovedAt = nil, time.Time{}
	timeline, err := old.Timeline()
	if err != nil || !timeline.any(old.Watermark, now) {
		// If this binary cannot read the timing, it has no ticks to settle.
		c.Watermark = latest(old.Watermark, now)
		return c
	}
	ended := now
	if !old.RemovedAt.IsZero() {
		ended = old.RemovedAt
	}
	for _, era := range append(old.Earlier, old.present(ended)...) {
		if era.Until.After(old.Watermark) {
			era.Removed = era.Removed || !old.RemovedAt.IsZero()
			c.Earlier = append(c.Earlier, era)
		}
	}
	if ended.Before(now) {
		c.Earlier = append(c.Earlier, Era{Spec: manual, Until: now})
	}
	return c
}

// next returns the first due tick after the watermark; zero if there is none or the
// definition cannot be read.
func (c *Cron) next() time.Time {
	timeline, err := c.Timeline()
	if err != nil {
		return time.Time{}
	}
	if next, ok := timeline.Next(c.Watermark); ok {
		return next
	}
	// A removed cron is visited once more for a tick that daylight saving omitted.
	for tick := range timeline.Ticks(c.Watermark, c.RemovedAt) {
		return tick.At
	}
	return time.Time{}
}

func earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
