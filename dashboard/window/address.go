package window

import (
	"fmt"
	"time"
)

// Pairs returns the parameters that select the window, without those that are empty or usual.
func (w Window) Pairs() []string {
	pairs := []string{"zone", ""}
	if w.home == nil && w.Zone != time.UTC || w.home != nil && w.Zone != w.home {
		pairs[1] = w.Zone.String()
	}
	switch {
	case w.Span != 0:
		return append(pairs, "span", Name(w.Span))
	case w.Live:
		return append(pairs, "from", stamp(w.From))
	default:
		return append(pairs, "from", stamp(w.From), "to", stamp(w.To))
	}
}

// stamp returns an instant as it is written in an address; empty for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Name returns the name of a width: 24h, 7d.
func Name(width time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
		from time.Duration
	}{{24 * time.Hour, "d", 48 * time.Hour}, {time.Hour, "h", 0}, {time.Minute, "m", 0}, {time.Second, "s", 0}} {
		if width >= max(unit.from, unit.of) && width%unit.of == 0 {
			return fmt.Sprintf("%d%s", width/unit.of, unit.name)
		}
	}
	return width.String()
}

// Width returns how long the window is.
func (w Window) Width() time.Duration { return w.To.Sub(w.From) }

// Has reports whether an instant is in the window.
func (w Window) Has(t time.Time) bool {
	return (w.From.IsZero() || !t.Before(w.From)) && (w.To.IsZero() || t.Before(w.To))
}

// Between returns a window with other bounds.
func (w Window) Between(from, to time.Time) Window {
	return Window{From: from, To: to, Zone: w.Zone, home: w.home}
}

// Earlier returns the window of the same width before this one, to the whole minute where
// it has an hour or more: a link that stays the same for a while.
func (w Window) Earlier() Window {
	end := w.From
	if w.Width() >= time.Hour {
		end = end.Truncate(time.Minute)
	}
	return w.Between(end.Add(-w.Width()), end)
}

// Later returns the window of the same width after this one.
func (w Window) Later() Window { return w.Between(w.To, w.To.Add(w.Width())) }

// In returns the window with another zone.
func (w Window) In(zone *time.Location) Window {
	w.Zone = zone
	return w
}

// Field returns an instant for a field of a browser's form, in the window's zone.
func (w Window) Field(t time.Time) string {
	if t = t.In(w.Zone); t.Second() != 0 {
		return t.Format("2006-01-02T15:04:05")
	}
	return t.Format(fieldLayout)
}

func (w Window) show(t time.Time) string { return t.In(w.Zone).Format("2006-01-02 15:04:05 MST") }

// String describes the window: last 6h, 2026-11-20 02:00 to 03:00 UTC.
func (w Window) String() string {
	from, to := w.From.In(w.Zone), w.To.In(w.Zone)
	switch {
	case w.Span != 0:
		return "last " + Name(w.Span)
	case w.Live:
		return "since " + short(from, time.DateOnly+" ") + from.Format(" MST")
	case from.Format("MST") != to.Format("MST"):
		return short(from, time.DateOnly+" ") + from.Format(" MST") + " to " + short(to, time.DateOnly+" ") + to.Format(" MST")
	case from.Format(time.DateOnly) == to.Format(time.DateOnly):
		return short(from, time.DateOnly+" ") + " to " + short(to, "") + to.Format(" MST")
	default:
		return short(from, time.DateOnly+" ") + " to " + short(to, time.DateOnly+" ") + to.Format(" MST")
	}
}

// short omits seconds that are zero.
func short(t time.Time, date string) string {
	if t.Second() == 0 {
		return t.Format(date + "15:04")
	}
	return t.Format(date + time.TimeOnly)
}
