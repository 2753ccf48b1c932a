package format

import (
	"fmt"
	"time"
)

// The formats of a stamp.
const (
	ModeAgo   = "ago"   // 4s ago
	ModeSince = "since" // 4s
	ModeUntil = "until" // in 4s
	ModeLeft  = "left"  // 2.2 s
)

// Stamp is an instant on the page. The server formats it, and app.js keeps it current.
type Stamp struct {
	Mode string
	ISO  string
	MS   int64
	Text string
	// Moves names an instant that moves every second, in the ages of a beat.
	Moves string
}

// Moving marks an instant that moves every second.
func (s Stamp) Moving(name string) Stamp {
	s.Moves = name
	return s
}

// NewStamp returns a stamp of an instant in one of the formats.
func NewStamp(mode string, now, at time.Time) Stamp {
	if at.IsZero() {
		return Stamp{Text: "–"}
	}
	text := ""
	switch mode {
	case ModeAgo:
		text = "just now"
		if now.Sub(at) >= time.Second {
			text = Coarse(now.Sub(at)) + " ago"
		}
	case ModeSince:
		text = Coarse(now.Sub(at))
	case ModeUntil:
		text = "in " + Coarse(at.Sub(now))
		if at.Sub(now) < time.Second {
			text = "now"
		}
	}
	if mode == ModeLeft {
		text = fmt.Sprintf("%.1f s", max(at.Sub(now), 0).Seconds())
	}
	return Stamp{Mode: mode, ISO: at.UTC().Format(time.RFC3339Nano), MS: at.UnixMilli(), Text: text}
}

// Moment is an instant on the page that was measured to the millisecond.
type Moment struct{ ISO, Text string }

// NewMoment returns an instant, which the page shows in UTC.
func NewMoment(t time.Time) Moment {
	t = t.UTC()
	return Moment{t.Format(time.RFC3339Nano), t.Format("2006-01-02 15:04:05.000 UTC")}
}
