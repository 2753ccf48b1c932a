package pages

import (
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/dashboard/window"
	"github.com/forge-scheduler/forge/internal/cronexpr"
)

// timeControl selects the window of a page by links and a form, so that it needs no script.
type timeControl struct {
	// Path is the address of the form, Anchor the place on the page to which it leads, Keep
	// the other parameters of the page.
	Path, Anchor string
	Keep         []fact
	// Text describes the window, Fixed reports that it does not end now.
	Text  string
	Fixed bool
	// Spans lead to windows that end now, Earlier and Later to those beside this one. Later is
	// empty if it would begin after now.
	Spans          []charts.SpanLink
	Earlier, Later string
	// From and To fill in the form. Its instants are in Zone.
	From, To, Zone string
	// ZoneValue is the zone in the address; empty for the usual one.
	ZoneValue string
	// Zones lead to the same window in other zones. A script adds the reader's own zone to
	// OtherZone.
	Zones     []charts.SpanLink
	OtherZone string
	// Narrow is the address to which a script adds the bounds that were dragged.
	Narrow string
}

// window parses the window of a page by the database's clock.
func (s *Pages) window(req *request, now time.Time, usual time.Duration) (window.Window, error) {
	w, err := window.Parse(req.Values, now, usual)
	if err != nil {
		return w, web.BadRequest(err)
	}
	return w, nil
}

// timeControl returns the control of a page's window. keep are pairs of the page's other
// parameters, zones are time zones that its readers may want.
func (s *Pages) timeControl(w window.Window, now time.Time, path, anchor string, spans []time.Duration, keep []string, zones ...string) timeControl {
	at := func(to window.Window) string {
		return path + "?" + web.Encode(append(slices.Clone(keep), to.Pairs()...)...) + anchor
	}
	c := timeControl{
		Path: path, Anchor: anchor, Text: w.String(), Fixed: !w.Live, Zone: w.Zone.String(), Earlier: at(w.Earlier()),
		From: w.Field(w.From), To: w.Field(w.To),
	}
	for i := 0; i+1 < len(keep); i += 2 {
		if keep[i+1] != "" {
			c.Keep = append(c.Keep, fact{keep[i], keep[i+1]})
		}
	}
	for _, span := range spans {
		c.Spans = append(c.Spans, charts.SpanLink{Name: window.Name(span), Path: at(w.Last(span, now)), Current: w.Span == span})
	}
	if !w.Live && w.To.Before(now) {
		c.Later = at(w.Later())
	}
	for _, zone := range s.zonesFor(w, zones) {
		c.Zones = append(c.Zones, charts.SpanLink{Name: zone.String(), Path: at(w.In(zone)), Current: zone == w.Zone})
	}
	pairs := w.Pairs() // the zone is the first
	c.OtherZone = path + "?" + web.Encode(append(slices.Clone(keep), pairs[2:]...)...) + "&zone="
	c.Narrow = path + "?" + web.Encode(append(slices.Clone(keep), pairs[:2]...)...)
	c.ZoneValue = pairs[1]
	return c
}

// anyTime shows that no window is selected.
func (c *timeControl) anyTime() {
	c.Text, c.Fixed, c.Earlier, c.Later = "any time", false, "", ""
	for i := range c.Spans {
		c.Spans[i].Current = false
	}
}

// zonesFor returns UTC, the zone of the crons of this node's file, the given zones and that of
// the window, each once.
func (s *Pages) zonesFor(w window.Window, names []string) []*time.Location {
	if s.Settings != nil {
		if defaults, ok := s.Settings()["cron_defaults"].(map[string]any); ok {
			name, _ := defaults["timezone"].(string)
			names = append([]string{name}, names...)
		}
	}
	zones := []*time.Location{time.UTC}
	for _, name := range append(names, w.Zone.String()) {
		if zone, err := cronexpr.LoadZone(name); err == nil && !slices.Contains(zones, zone) {
			zones = append(zones, zone)
		}
	}
	return zones
}
