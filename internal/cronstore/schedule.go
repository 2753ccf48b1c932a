package cronstore

import (
	"iter"
	"time"

	"github.com/robfig/cron/v3"
)

type occurrence struct {
	At         time.Time
	SkippedDST bool
}

type robfig struct{ s cron.Schedule }

func (r robfig) Next(after time.Time) (time.Time, bool) {
	if r.s == nil {
		return time.Time{}, false
	}
	next := r.s.Next(after)
	return next, !next.IsZero()
}

func (r robfig) Ticks(after, until time.Time) iter.Seq[occurrence] {
	return func(yield func(occurrence) bool) {
		for {
			next, ok := r.Next(after)
			if !ok || next.After(until) || !yield(occurrence{At: next}) {
				return
			}
			after = next
		}
	}
}

func parse(_ string, timing Timing) (schedule, error) {
	if timing.Schedule == "@manual" {
		return robfig{}, nil
	}
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	s, err := parser.Parse("CRON_TZ=UTC " + timing.Schedule)
	if err != nil {
		return nil, err
	}
	return robfig{s}, nil
}
