package cronstore

import "time"

// manual has no ticks: the time in which a cron was not configured.
var manual = Timing{Schedule: "@manual", Timezone: "UTC"}

// begin returns a cron that was never seen before: its time starts now.
func begin(name string, spec Spec, now time.Time) Cron {
	c := Cron{Name: name, Spec: spec, SpecHash: specHash(spec), Watermark: now}
	c.NextTick = c.next()
	return c
}

// revise gives a cron another definition. A timing that changes, or that comes
// back, starts from now.
func revise(old Cron, spec Spec, now time.Time) Cron {
	if old.RemovedAt.IsZero() && old.Spec.Timing().equal(spec.Timing()) {
		old.Spec, old.SpecHash = spec, specHash(spec)
		return old
	}
	c := conclude(old, now)
	c.Spec, c.SpecHash = spec, specHash(spec)
	c.NextTick = c.next()
	return c
}

// pause holds a cron: what fell due before now still fires.
func pause(old Cron, now time.Time) Cron {
	old.PausedAt = now
	old.NextTick = old.next()
	return old
}

// resume ends a pause, whether it was asked for by hand or by the file: what
// fell due in it is recorded and not fired. The file's hash stays, so that only
// an edit of the cron brings the file's pause back.
func resume(old Cron, now time.Time) Cron {
	c := conclude(old, now)
	c.PausedAt, c.Spec.Paused = time.Time{}, false
	c.NextTick = c.next()
	return c
}

// retire takes a cron out of the configuration. Ticks that are still pending
// will be recorded, and not fired.
func retire(old Cron, now time.Time) Cron {
	old.RemovedAt = now
	old.NextTick = old.next()
	return old
}

// conclude ends the timing in force at now: the watermark moves there, unless ticks
// are pending, which keep their timing as eras.
func conclude(old Cron, now time.Time) Cron {
	c := old
	c.Earlier, c.RemovedAt = nil, time.Time{}
	timeline, err := old.Timeline()
	if err != nil || !timeline.any(old.Watermark, now) {
		// A timing that this binary cannot read has no ticks that it could
		// settle: nobody waits for them.
		c.Watermark = later(old.Watermark, now)
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
		c.Earlier = append(c.Earlier, Era{Timing: manual, Until: now})
	}
	return c
}

// next returns the first due tick after the watermark; zero if there is none or
// the definition cannot be read.
func (c *Cron) next() time.Time {
	timeline, err := c.Timeline()
	if err != nil {
		return time.Time{}
	}
	if next, ok := timeline.Next(c.Watermark); ok {
		return next
	}
	// A removed cron is visited once more for a tick that daylight saving left
	// out.
	for tick := range timeline.Ticks(c.Watermark, c.RemovedAt) {
		return tick.At
	}
	return time.Time{}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
