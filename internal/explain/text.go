package explain

import "time"

// Instant writes an instant out, in UTC.
func Instant(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// Span shows a duration with three significant places at most.
func Span(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}
