package config

import (
	"strconv"
	"strings"
	"time"
)

// Instant is an RFC 3339 time in a file, as a string or as TOML's own date-time
// with an offset; empty where there is none.
type Instant string

// Time returns the instant, zero if there is none.
func (i Instant) Time() time.Time {
	at, err := time.Parse(time.RFC3339, string(i))
	if err != nil { // Load lets nothing else in
		return time.Time{}
	}
	return at
}

const wantInstant = `RFC 3339 with an offset, such as "2027-01-01T00:00:00Z"`

func (l *loader) instant(path string, target *Instant, f field, value any) {
	switch v := value.(type) {
	case time.Time:
		if strings.HasSuffix(v.Location().String(), "-local") { // as the decoder calls what has no offset
			l.wrong(path, "an instant without an offset", strconv.Quote(v.Format("2006-01-02T15:04:05")), wantInstant)
			return
		}
		*target = Instant(v.Format(time.RFC3339Nano))
	case string:
		if _, err := time.Parse(time.RFC3339, v); err != nil {
			l.wrong(path, "not an instant", strconv.Quote(clip(v)), wantInstant)
			return
		}
		*target = Instant(v)
	default:
		l.wrong(path, "wrong type", l.describe(f, value), wantInstant)
	}
}
