// Package window parses and writes the range of time that a page or a list shows.
package window

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// Keys are the parameters of an address that select a window: span for one that ends now, or
// from and to, and the zone in which its page shows instants.
var Keys = []string{"span", "from", "to", "zone"}

// Shortest and Longest bound the width of a page's window.
const (
	Shortest = time.Second
	Longest  = 3660 * 24 * time.Hour
)

// Window is a range of time: From is part of it, To is not. In the window of a list either
// may be zero, for no bound.
type Window struct {
	From, To time.Time
	// Span is the width of a window that was selected by it; it ends now.
	Span time.Duration
	// Live reports that the window ends now, and so moves with the clock.
	Live bool
	// Zone is the zone in which instants are shown and read.
	Zone *time.Location
	// home is the zone of an address without one, nil for UTC.
	home *time.Location
}

// Error is a mistake in a parameter.
type Error struct{ Key, Found, Want string }

func (e *Error) Error() string { return fmt.Sprintf("%s: found %s, want %s", e.Key, e.Found, e.Want) }

// Last returns the window of a width that ends now.
func Last(width time.Duration, now time.Time, zone *time.Location) Window {
	return Window{From: now.Add(-width), To: now, Span: width, Live: true, Zone: zone}
}

// Last returns the window of a width that ends now, in the same zone.
func (w Window) Last(width time.Duration, now time.Time) Window {
	last := Last(width, now, w.Zone)
	last.home = w.home
	return last
}

// Parse returns the window that an address selects. usual is the width of the window of an
// address that selects none, and of one with only to; 0 leaves such windows open, as those of
// lists are. All mistakes are reported, each as an *Error.
func Parse(values url.Values, now time.Time, usual time.Duration) (Window, error) {
	return ParseIn(nil, values, now, usual)
}

// ParseIn is Parse with another zone than UTC for an address without one.
func ParseIn(home *time.Location, values url.Values, now time.Time, usual time.Duration) (Window, error) {
	p := parser{values: values, w: Window{Zone: time.UTC, home: home}}
	p.zone()
	span := p.span()
	p.w.From, p.w.To = p.instant("from"), p.instant("to")
	if len(p.errs) > 0 {
		return Window{}, errors.Join(p.errs...)
	}
	switch {
	case span != 0 && (values.Get("from") != "" || values.Get("to") != ""):
		p.fail("span", "it together with from or to", "either span, or from and to")
	case span != 0:
		p.w = p.w.Last(span, now)
	case usual != 0:
		p.close(now, usual)
	}
	if !p.w.From.IsZero() && !p.w.To.IsZero() && !p.w.From.Before(p.w.To) {
		p.fail("from", p.w.show(p.w.From), "an instant before to, which is "+p.w.show(p.w.To))
	} else if usual != 0 {
		p.bound()
	}
	return p.w, errors.Join(p.errs...)
}

type parser struct {
	values url.Values
	w      Window
	errs   []error
}

func (p *parser) fail(key, found, want string) { p.errs = append(p.errs, &Error{key, found, want}) }

func (p *parser) zone() {
	name := p.values.Get("zone")
	if name == "" && p.w.home != nil {
		p.w.Zone = p.w.home
		return
	}
	zone, err := cronexpr.LoadZone(name)
	if err == nil {
		p.w.Zone = zone
		return
	}
	want := `"UTC" or an IANA name such as "Europe/Berlin"`
	if wrong, ok := errors.AsType[*cronexpr.ParseError](err); ok {
		want = wrong.Want
	}
	p.fail("zone", fmt.Sprintf("%.60q", name), want)
}

func (p *parser) span() time.Duration {
	text := p.values.Get("span")
	if text == "" {
		return 0
	}
	span, err := config.ParseDuration(text)
	if err != nil || span.Std() < Shortest || span.Std() > Longest {
		p.fail("span", fmt.Sprintf("%.60q", text), "a duration from "+Name(Shortest)+" to "+Name(Longest)+", such as 6h")
		return Shortest
	}
	return span.Std()
}

// layouts are the forms of an instant without an offset, the first that of a browser's form.
var layouts = []string{fieldLayout, "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05", time.DateOnly}

const fieldLayout = "2006-01-02T15:04"

// The years of instants. PostgreSQL stores all of them.
const firstYear, lastYear = 1970, 2199

func (p *parser) instant(key string) time.Time {
	text := p.values.Get(key)
	if text == "" {
		return time.Time{}
	}
	at, err := Instant(key, text, p.w.Zone)
	if err != nil {
		p.errs = append(p.errs, err)
	}
	return at
}

// Instant parses an instant: RFC 3339, or a time in a zone. A mistake is an *Error.
func Instant(key, text string, zone *time.Location) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	for _, layout := range layouts {
		if err != nil {
			at, err = time.ParseInLocation(layout, text, zone)
		}
	}
	if err != nil || at.Year() < firstYear || at.Year() > lastYear {
		return time.Time{}, &Error{key, fmt.Sprintf("%.60q", text), "an instant such as 2026-11-20T02:00:00Z, or 2026-11-20 02:00 in " + zone.String()}
	}
	return at.UTC(), nil
}

// close gives a window without a bound one.
func (p *parser) close(now time.Time, usual time.Duration) {
	switch {
	case p.w.From.IsZero() && p.w.To.IsZero():
		p.w = p.w.Last(usual, now)
	case p.w.To.IsZero():
		p.w.To, p.w.Live = now, true
	case p.w.From.IsZero():
		p.w.From = p.w.To.Add(-usual)
	}
}

func (p *parser) bound() {
	width := p.w.Width()
	switch {
	case len(p.errs) > 0:
	case width < Shortest:
		p.fail("to", p.w.show(p.w.To), "an instant at least "+Name(Shortest)+" after from")
	case width > Longest:
		p.fail("to", p.w.show(p.w.To), "an instant at most "+Name(Longest)+" after from")
	}
}
