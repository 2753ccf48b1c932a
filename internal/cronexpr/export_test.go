package cronexpr

import (
	"iter"
	"slices"
	"strings"
	"time"
)

// Between yields the ticks in (after, until], in the cron's zone.
func (s *Schedule) Between(after, until time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for at := range s.from(after) {
			if at.After(until) || !yield(at) {
				return
			}
		}
	}
}

// Zone returns the zone of the times that the schedule returns.
func (s *Schedule) Zone() *time.Location { return s.zone }

// ZoneNames returns the names that LoadZone accepts, sorted.
func ZoneNames() []string {
	files, err := zones()
	if err != nil {
		return []string{"UTC"}
	}
	names := []string{"UTC"}
	for name := range files {
		if strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
