package explain

import (
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
)

// Coming is one future tick, in the cron's zone and in UTC.
type Coming struct {
	Tick time.Time `json:"tick"`
	UTC  time.Time `json:"utc"`
	// FiresAt is the tick plus the cron's jitter, if it has one.
	FiresAt time.Time `json:"fires_at,omitzero"`
	// Excluded is why the tick does not fire.
	Excluded string `json:"excluded,omitempty"`
}

// Next returns the next ticks of a definition after an instant.
func Next(name string, spec cronstore.Spec, after time.Time, count int) ([]Coming, error) {
	timeline, err := spec.Timeline(name)
	if err != nil {
		return nil, err
	}
	ticks := []Coming{}
	for due := range timeline.After(after) {
		if due.SkippedDST {
			continue
		}
		tick := Coming{Tick: due.At, UTC: due.At.UTC(), Excluded: due.Excluded}
		if spec.Jitter > 0 {
			tick.FiresAt = due.FiresAt.UTC()
		}
		ticks = append(ticks, tick)
		if len(ticks) == count {
			break
		}
	}
	return ticks, nil
}
