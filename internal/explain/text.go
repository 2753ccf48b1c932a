package explain

import "time"

// Instant formats an instant in UTC.
func Instant(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// Span formats a duration with at most three significant digits.
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
