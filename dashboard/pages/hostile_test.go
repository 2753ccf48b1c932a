package pages

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/live"
)

// A stream carries the parts of the page and nothing else, whatever their text is.
func TestHostileTextForgesNoEvent(t *testing.T) {
	t.Parallel()
	c := dashboardtest.Hostile()
	s := pagesOf(c)
	asks := url.Values{"id": {"42"}, "role": {"scheduler"}, "group": {dashboardtest.DeadGroup}, "name": {dashboardtest.Attack}, "node": {dashboardtest.Attack}, "alert": {dashboardtest.Attack}, "kind": {dashboardtest.Attack}}
	for name, kind := range pageKinds {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?"+asks.Encode(), nil)
		parts := s.fragments(t.Context(), kind, newRequest(r, kind))
		f := live.NewFeed()
		f.Publish(parts)
		stream, _ := f.Since(0, nil)
		got := eventsOf(string(stream))
		for part, html := range parts {
			dashboardtest.CheckHarmless(t, name+"/"+part, html)
			if strings.TrimSuffix(got[part], "\n") != strings.TrimSuffix(string(html), "\n") {
				t.Errorf("%s: the part %s came as %q", name, part, got[part])
			}
			delete(got, part)
		}
		if len(got) > 0 {
			t.Errorf("%s: events of no part: %q", name, got)
		}
	}
}

// eventsOf parses a stream according to the standard: a line ends with CR, LF or both.
func eventsOf(stream string) map[string]string {
	events, name, data := map[string]string{}, "", []string(nil)
	for line := range strings.SplitSeq(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream), "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				events[name] = strings.Join(data, "\n")
			}
			name, data = "", nil
		case field == "event":
			name = value
		case field == "data":
			data = append(data, value)
		case field == "id" && !strings.Contains(value, "pulse:") || field == "retry":
			events["the field "+field] = value
		}
	}
	return events
}
