package cronstore

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// Due is a due tick with the reasons that keep it from firing.
type Due struct {
	At time.Time
	// SkippedDST is whether daylight saving omits the local time on that day.
	SkippedDST bool
	// Paused is whether the cron was paused at that time.
	Paused bool
	// Removed is whether the cron was removed from the configuration before the
	// tick was recorded.
	Removed bool
	// Unconfigured is whether the cron was not configured at that time and came
	// back later.
	Unconfigured bool
	// Excluded is why the tick is excluded; empty: it is not.
	Excluded string
	// FiresAt is when the tick may fire: At plus its jitter. The jitter of an earlier
	// definition ends with it if a later one fires before the jitter would have ended.
	FiresAt time.Time
}

// Timeline is a parsed cron: its definition, and when it was and will be due. Without a
// definition it has no ticks.
type Timeline struct {
	// UpdatedAt is that of the cron.
	UpdatedAt time.Time

	cron      string
	stretches []stretch // at least one, if the definition can be parsed
}

// stretch is a parsed definition of the cron, in force until an instant; zero: no end.
type stretch struct {
	Era

	schedule   *cronexpr.Schedule
	exclusions []*cronexpr.Exclusion
}

// Timeline parses the cron's definitions.
func (c *Cron) Timeline() (*Timeline, error) { return c.timeline(schedules{}) }

// schedules are parsed schedules of crons, each once.
type schedules map[scheduleKey]*cronexpr.Schedule

type scheduleKey struct{ schedule, timezone, dstMissing, dstRepeated string }

// parse parses the schedule of a cron. Those that may depend on its name are not shared.
func (s schedules) parse(cron string, spec *Spec) (*cronexpr.Schedule, error) {
	if strings.ContainsAny(spec.Schedule, "Hh@") {
		return spec.Parse(cron)
	}
	key := scheduleKey{spec.Schedule, spec.Timezone, spec.DSTMissing, spec.DSTRepeated}
	if parsed := s[key]; parsed != nil {
		return parsed, nil
	}
	parsed, err := spec.Parse(cron)
	if err == nil {
		s[key] = parsed
	}
	return parsed, err
}

// timeline is Timeline with schedules that may be parsed already.
func (c *Cron) timeline(known schedules) (*Timeline, error) {
	if c.unreadable != nil {
		return nil, c.unreadable
	}
	t := &Timeline{UpdatedAt: c.UpdatedAt, cron: c.Name}
	for _, era := range slices.Concat(c.Earlier, c.present(c.RemovedAt)) {
		era.Removed = era.Removed || !c.RemovedAt.IsZero()
		if err := t.add(era, known); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Timeline parses a definition, as if it had always been in force.
func (s Spec) Timeline(name string) (*Timeline, error) {
	s.Paused = false
	t := &Timeline{cron: name}
	return t, t.add(Era{Spec: s}, schedules{})
}

// present returns the definition in force as eras that end at until: two if the cron
// was paused in between.
func (c *Cron) present(until time.Time) []Era {
	now := Era{Spec: c.Spec, Until: until}
	if c.PausedAt.IsZero() {
		return []Era{now}
	}
	before := now
	before.Until = c.PausedAt
	now.Paused = true
	return []Era{before, now}
}

func (t *Timeline) add(era Era, known schedules) error {
	s := stretch{Era: era}
	var err error
	if s.schedule, err = known.parse(t.cron, &era.Spec); err != nil {
		return fmt.Errorf("cron %s: %w", t.cron, err)
	}
	for _, text := range era.Exclude {
		exclusion, err := cronexpr.ParseExclusion(text, cronexpr.Options{Name: t.cron, Timezone: era.Timezone})
		if err != nil {
			return fmt.Errorf("cron %s: exclude: %w", t.cron, err)
		}
		s.exclusions = append(s.exclusions, exclusion)
	}
	t.stretches = append(t.stretches, s)
	return nil
}

// Readable reports whether the timeline has a definition.
func (t *Timeline) Readable() bool { return len(t.stretches) > 0 }

func (t *Timeline) last() *stretch { return &t.stretches[len(t.stretches)-1] }

// Spec returns the definition in force.
func (t *Timeline) Spec() *Spec { return &t.last().Spec }

// bound narrows (after, until] to the time between start_at and end_at. Ticks are
// whole seconds, so a nanosecond lies between any two.
func (s *stretch) bound(after, until time.Time) (time.Time, time.Time) {
	if start := s.StartAt; !start.IsZero() && !start.Before(after) {
		after = start.Add(-time.Nanosecond)
	}
	if end := s.EndAt; !end.IsZero() && !end.After(until) {
		until = end.Add(-time.Nanosecond)
	}
	if !s.Until.IsZero() && s.Until.Before(until) {
		until = s.Until
	}
	return after, until
}

// due returns the tick with the properties of the stretch.
func (s *stretch) due(cron string, tick cronexpr.Tick) Due {
	due := Due{
		At: tick.At, SkippedDST: tick.SkippedDST, Paused: s.Paused, Removed: s.Removed, Unconfigured: s.Unconfigured,
		FiresAt: tick.At.Add(jitter(cron, tick.At, s.Jitter.Std())),
	}
	for _, exclusion := range s.exclusions {
		if exclusion.Covers(tick.At) {
			due.Excluded = exclusion.String()
			break
		}
	}
	return due
}

// jitter returns the delay of one tick, from 0 to below the bound, in whole
// milliseconds. It depends only on the cron and the tick, so that every node and
// every attempt computes the same delay.
func jitter(cron string, tick time.Time, bound time.Duration) time.Duration {
	if bound < time.Millisecond {
		return 0
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s@%d", cron, tick.Unix()))
	return time.Duration(binary.BigEndian.Uint64(sum[:8])%uint64(bound/time.Millisecond)) * time.Millisecond //nolint:gosec // below the bound
}

// Paused reports whether future ticks are skipped because the cron is paused.
func (t *Timeline) Paused() bool { return t.last().Paused }

// Manual reports whether the cron has no schedule.
func (t *Timeline) Manual() bool { return t.last().schedule.Manual() }

// Next returns when the first due tick after an instant fires, with its jitter;
// false if there is none. It ignores ticks that daylight saving omits: they are
// recorded with the next tick.
func (t *Timeline) Next(after time.Time) (time.Time, bool) {
	for due := range t.After(after) {
		if !due.SkippedDST {
			return due.FiresAt, true
		}
	}
	return time.Time{}, false
}

// farthest is not before any tick.
var farthest = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

// After yields all due ticks after an instant, in order.
func (t *Timeline) After(at time.Time) iter.Seq[Due] { return t.Ticks(at, farthest) }

// Ticks yields the due ticks in (after, until], in order.
func (t *Timeline) Ticks(after, until time.Time) iter.Seq[Due] { return t.ticks(0, after, until) }

// ticks is Ticks of the stretches from the first one on.
func (t *Timeline) ticks(first int, after, until time.Time) iter.Seq[Due] {
	return func(yield func(Due) bool) {
		for i := first; i < len(t.stretches); i++ {
			s := &t.stretches[i]
			from, end := s.bound(after, until)
			if end.After(from) {
				for tick := range s.schedule.Ticks(from, end) {
					due := s.due(t.cron, tick)
					if t.delaysLater(i, due) {
						due.FiresAt = s.Until
					}
					if !yield(due) {
						return
					}
				}
			}
			if s.Until.After(after) {
				after = s.Until
			}
		}
	}
}

// delaysLater reports whether a tick of a stretch fires after the end of the stretch, and not
// before a tick of a later one. The leader settles ticks in order, so that tick would wait.
func (t *Timeline) delaysLater(i int, due Due) bool {
	after := t.stretches[i].Until
	if after.IsZero() || !due.FiresAt.After(after) {
		return false
	}
	for later := i + 1; later < len(t.stretches); later++ {
		next := &t.stretches[later]
		until := due.FiresAt
		if !next.Until.IsZero() {
			until = earliest(until, next.Until)
		}
		if !next.Paused && !next.Removed {
			for tick := range t.ticks(later, after, until) {
				if tick.mayFire() {
					return !tick.FiresAt.After(due.FiresAt)
				}
			}
		}
		after = latest(after, next.Until)
	}
	return false
}

// mayFire reports whether the tick fires unless a policy skips it.
func (d Due) mayFire() bool {
	return !d.SkippedDST && !d.Paused && !d.Removed && d.Excluded == ""
}

// reaches are the periods that Before searches, the shortest first.
var reaches = []time.Duration{time.Minute, time.Hour, 25 * time.Hour, 32 * 24 * time.Hour, 367 * 24 * time.Hour, 9 * 366 * 24 * time.Hour}

// Before returns the last due tick before an instant; false if there is none within
// nine years.
func (t *Timeline) Before(at time.Time) (last Due, ok bool) {
	if end := t.last().EndAt; !end.IsZero() && end.Before(at) {
		at = end
	}
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

// At returns the due tick at an instant, and false if there is none.
func (t *Timeline) At(at time.Time) (Due, bool) {
	for tick := range t.Ticks(at.Add(-time.Nanosecond), at) {
		if tick.At.Equal(at) {
			return tick, true
		}
	}
	return Due{}, false
}

// any reports whether a tick is due in (after, until].
func (t *Timeline) any(after, until time.Time) bool {
	for range t.Ticks(after, until) {
		return true
	}
	return false
}
