package dashboard

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/cronstore"
)

var (
	optionIn  = regexp.MustCompile(`<a role="option"[^>]* href="([^"]*)"`)
	sectionIn = regexp.MustCompile(`(?s)<ul class="hits">.*?</ul>`)
	linkIn    = regexp.MustCompile(`<a href="([^"]*)"`)
)

// addressesIn returns the addresses of the results, in their order.
func addressesIn(t *testing.T, options string) (found []string) {
	t.Helper()
	for _, option := range optionIn.FindAllStringSubmatch(options, -1) {
		found = append(found, html.UnescapeString(option[1]))
	}
	return found
}

func TestSearchFinds(t *testing.T) {
	t.Parallel()
	_, options := clusterWithTokens()
	h := New(options)
	for _, test := range []struct {
		scope, query string
		want         []string // in their order, among others
		not          []string
	}{
		{"viewer", "", []string{"/", "/crons", "/jobs"}, []string{"/tokens", "/enqueue", "/jobs/42"}},
		{"viewer", "lead", []string{"/leaders"}, []string{"/jobs"}},
		{"viewer", "doctor", []string{"/doctor"}, nil},
		{"viewer", "backup", []string{"/crons/backup", "/crons?q=backup"}, []string{"/crons/backup#act-pause"}},
		{"viewer", "42", []string{"/jobs/42"}, []string{"/jobs/42/cancel"}},
		{"viewer", "#42", []string{"/jobs/42"}, nil},
		{"viewer", "job 42", []string{"/jobs/42"}, nil},
		{"viewer", "99", nil, []string{"/jobs/99"}},
		{"viewer", "9999999999999999999999", nil, []string{"/jobs/9999999999999999999999"}},
		{"viewer", "node-2", []string{"/nodes/node-2"}, []string{"/nodes/node-2/drain"}},
		{"viewer", "scheduler", []string{"/leaders?role=scheduler"}, []string{"/leaders/scheduler/step-down"}},
		{"viewer", "quiet", []string{"/alerts#alert-quiet"}, []string{"/alerts/quiet/test"}},
		{"viewer", "pause backup", nil, []string{"/crons/backup#act-pause"}},
		{"operator", "pause backup", []string{"/crons/backup#act-pause"}, []string{"/crons/backup#act-resume", "/crons/backup/trigger"}},
		{"operator", "run cron backup", []string{"/crons/backup/trigger"}, []string{"/crons/backup#act-pause"}},
		{"operator", "backf backup", []string{"/crons/backup/backfill"}, nil},
		{"operator", "42 cancel", []string{"/jobs/42/cancel"}, []string{"/jobs/42/retry"}},
		{"operator", "test no_scheduler", []string{"/alerts/no_scheduler_leader/test"}, nil},
		{"operator", "drain node-2", nil, []string{"/nodes/node-2/drain"}},
		{"operator", "enqueue", []string{"/enqueue"}, []string{"/tokens#act-create"}},
		{"operator", "token", nil, []string{"/tokens", "/tokens#act-create"}},
		{"admin", "drain node-2", []string{"/nodes/node-2/drain"}, []string{"/nodes/node-1/drain"}},
		{"admin", "step down scheduler", []string{"/leaders/scheduler/step-down"}, []string{"/leaders/scheduler/transfer"}},
		{"admin", "token", []string{"/tokens", "/tokens#act-create"}, nil},
	} {
		address := "?" + url.Values{"q": {test.query}}.Encode()
		got := addressesIn(t, withCookie(t, h, "forge=session-of-"+test.scope, "/search/options"+address).Body.String())
		at := 0
		for _, want := range test.want {
			i := slices.Index(got[at:], want)
			if i < 0 {
				t.Errorf("%q as %s: %s is not in its place among %q", test.query, test.scope, want, got)
				break
			}
			at += i
		}
		for _, not := range test.not {
			if slices.Contains(got, not) {
				t.Errorf("%q as %s finds %s", test.query, test.scope, not)
			}
		}
		var onPage []string
		for _, list := range sectionIn.FindAllString(withCookie(t, h, "forge=session-of-"+test.scope, "/search"+address).Body.String(), -1) {
			for _, link := range linkIn.FindAllStringSubmatch(list, -1) {
				onPage = append(onPage, html.UnescapeString(link[1]))
			}
		}
		if !slices.Equal(got, onPage) {
			t.Errorf("%q: the palette has %q, the page %q", test.query, got, onPage)
		}
	}
}

// Results are pages and forms: opening one changes nothing.
func TestSearchResultsChangeNothing(t *testing.T) {
	t.Parallel()
	c, options := clusterWithTokens()
	h := New(options)
	for _, query := range []string{"", "42", "cancel 42", "run backup", "pause backup", "backfill backup", "drain node", "step down", "transfer", "pause queue", "test alert", "silence", "create token", "e", "a"} {
		for _, path := range addressesIn(t, withCookie(t, h, "forge=session-of-admin", "/search/options?"+url.Values{"q": {query}}.Encode()).Body.String()) {
			path, _, _ := strings.Cut(path, "#")
			if w := withCookie(t, h, "forge=session-of-admin", path); w.Code != http.StatusOK {
				t.Errorf("%q leads to %s: status %d", query, path, w.Code)
			}
		}
	}
	if len(c.Done) > 0 {
		t.Errorf("did %q", c.Done)
	}
}

// A search returns a bounded number of results, however many match.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	for i := range 1000 {
		c.Crons = append(c.Crons, cronstore.Cron{Name: fmt.Sprintf("node %d", i)})
		node := c.Nodes[0]
		node.NodeID = fmt.Sprintf("node-x%d", i)
		c.Nodes = append(c.Nodes, node)
	}
	h := handlerOf(c)
	for _, query := range []string{"n", "node", "drain node", "run node"} {
		if got := addressesIn(t, get(t, h, "/search/options?"+url.Values{"q": {query}}.Encode()).Body.String()); len(got) == 0 || len(got) > 60 {
			t.Errorf("%q has %d results", query, len(got))
		}
	}
	long := strings.Repeat("x", 201)
	for _, path := range []string{"/search?q=" + long, "/search/options?q=" + long} {
		if w := get(t, h, path); w.Code != http.StatusBadRequest {
			t.Errorf("a long search: status %d", w.Code)
		}
	}
}

// The results for the palette are a fragment without the layout. Text in them stays text.
func TestSearchOptionsAreAFragment(t *testing.T) {
	t.Parallel()
	h := handlerOf(dashboardtest.Hostile())
	for _, query := range []string{dashboardtest.Attack, "", "a", `"><img src=x onerror=alert(1)>`, "'':*&!|()<->", `\`, "%", "\u202e", "ﷺ"} {
		w := get(t, h, "/search/options?"+url.Values{"q": {query}}.Encode())
		if len(query) <= 200 && w.Code != http.StatusOK {
			t.Errorf("%q: status %d", query, w.Code)
		}
		if body := w.Body.String(); w.Code == http.StatusOK && (strings.Contains(body, "<html") || strings.Contains(body, "<script") || strings.Contains(body, "<img")) {
			t.Errorf("%q: %s", query, body)
		}
		dashboardtest.CheckHarmless(t, query, w.Body.Bytes())
	}
}
