package pages

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/live"
)

// While only heartbeats and renewals happen, a stream carries only beats, and no other part
// of the page changes.
func TestQuietClusterSendsOnlyBeats(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	s := pagesOf(c)
	for _, page := range []string{"overview", "leaders", "nodes", "crons", "cron", "jobs", "queues", "queue", "alerts", "dead", "charts", "storage", "settings", "beat"} {
		kind := pageKinds[page]
		req := newRequest(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?name=backup&span=6h", nil), kind)
		f := live.NewFeed()
		c.Heartbeat(dashboardtest.Epoch)
		f.Publish(s.fragments(t.Context(), kind, req))
		all, version := f.Since(0, nil)
		if !strings.Contains(string(all), "id: ") {
			t.Fatalf("%s: what a reader gets first has no id: %s", page, all)
		}
		c.Heartbeat(dashboardtest.Epoch.Add(time.Second))
		f.Publish(s.fragments(t.Context(), kind, req))
		next, _ := f.Since(version, nil)
		if !strings.HasPrefix(string(next), "event: beat\ndata: ") || strings.Count(string(next), "event: ") != 1 || len(next) > 400 {
			t.Errorf("%s: a second later the stream carries %s", page, next)
		}
	}
}

// A beat contains the ages of all instants that move.
func TestBeatsContainAllMovingInstants(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	s := pagesOf(c)
	for _, page := range []string{"overview", "leaders", "nodes"} {
		kind := pageKinds[page]
		parts := s.fragments(t.Context(), kind, newRequest(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil), kind))
		beat := string(parts[live.BeatPart])
		moves := map[string]bool{}
		for _, html := range parts {
			for _, rest := range strings.Split(string(html), `data-moves="`)[1:] {
				name, _, _ := strings.Cut(rest, `"`)
				moves[name] = true
			}
		}
		if len(moves) == 0 {
			t.Errorf("%s: nothing moves", page)
		}
		for _, name := range slices.Sorted(maps.Keys(moves)) {
			if !strings.Contains(beat, strings.ReplaceAll(name, ":", "%3A")+"=") {
				t.Errorf("%s: %s is not in %s", page, name, beat)
			}
		}
	}
}
