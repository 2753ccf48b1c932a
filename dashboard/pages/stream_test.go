package pages

import (
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/live"
	"github.com/forge-scheduler/forge/dashboard/route"
)

func TestEveryPageStreamsItsParts(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	s := pagesOf(c)
	for name, kind := range pageKinds {
		if name == beatKind.name {
			continue // not specific to a page
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?page="+name+"&name=backup&id=42&kind=dump&role=scheduler&term=7&node=node-2&alert=quiet&hash="+dashboardtest.OldHash+"&group="+dashboardtest.DeadGroup, nil)
		parts := s.fragments(t.Context(), kind, newRequest(r, kind))
		for _, part := range append(kind.parts, "pulse") {
			if len(parts[part]) == 0 {
				t.Errorf("%s: part %s is empty", name, part)
			}
		}
		page := dashboardtest.PlainGet(t, pageHandlerOf(c), map[string]string{
			"overview": "/", "leaders": "/leaders", "crons": "/crons", "cron": "/crons/backup", "backfill": "/crons/backup/backfill", "trigger": "/crons/backup/trigger",
			"silence": "/alerts/quiet/silence", "tryalert": "/alerts/no_scheduler_leader/test",
			"incident": "/leaders/scheduler/terms/7", "apply": "/apply", "nodes": "/nodes", "nodepage": "/nodes/node-2", "settings": "/settings", "search": "/search?q=backup", "keys": "/keys", "tokens": "/tokens", "sessions": "/sessions", "revoketoken": "/tokens/backup/revoke", "stepdown": "/leaders/scheduler/step-down", "transfer": "/leaders/scheduler/transfer",
			"drain": "/nodes/node-1/drain", "undrain": "/nodes/node-1/undrain",
			"jobs": "/jobs", "queues": "/queues", "queue": "/queues/bulk", "alerts": "/alerts", "charts": "/charts", "storage": "/storage", "activity": "/activity", "configs": "/config", "doctor": "/doctor", "config": "/config/" + dashboardtest.OldHash, "revert": "/config/" + dashboardtest.OldHash + "/revert", "job": "/jobs/42", "cancel": "/jobs/42/cancel", "retry": "/jobs/42/retry", "discard": "/jobs/42/discard",
			"enqueue": "/enqueue", "bulkcancel": "/bulk/jobs/cancel?kind=dump", "bulkretry": "/bulk/jobs/retry?kind=dump", "bulkdiscard": "/bulk/jobs/discard?kind=dump",
			"bulkcronpause": "/bulk/crons/pause", "bulkcronresume": "/bulk/crons/resume", "bulkdeadretry": "/bulk/dead/retry?kind=dump", "bulkdeaddiscard": "/bulk/dead/discard?id=42",
			"dead": "/dead", "deadgroup": "/dead/" + dashboardtest.DeadGroup, "deadretry": "/dead/" + dashboardtest.DeadGroup + "/retry", "deaddiscard": "/dead/" + dashboardtest.DeadGroup + "/discard",
		}[name]).Body.String()
		for _, part := range append(kind.parts, "pulse", live.BeatPart) {
			if strings.Count(page, `sse-swap="`+part+`"`) != 1 {
				t.Errorf("%s: the page has not one place for part %s", name, part)
			}
		}
		checkStream(t, s, name, page)
	}
}

var connects = regexp.MustCompile(`sse-connect="([^"]+)"`)

// checkStream expects that a page has one stream, and that the stream carries exactly the
// parts that the page has places for.
func checkStream(t *testing.T, s *Pages, name, page string) {
	t.Helper()
	found := connects.FindAllStringSubmatch(page, -1)
	if len(found) != 1 || !strings.Contains(page, `id="conn"`) {
		t.Errorf("%s: the page has %d streams, want one, and its pause", name, len(found))
		return
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, html.UnescapeString(found[0][1]), nil)
	kind, ok := pageKinds[r.URL.Query().Get("page")]
	if !ok {
		t.Errorf("%s: there is no stream %s", name, r.URL)
		return
	}
	kind = kind.stream()
	parts := s.fragments(t.Context(), kind, newRequest(r, kind))
	for part := range parts {
		if !strings.Contains(page, `sse-swap="`+part+`"`) {
			t.Errorf("%s: the stream carries %s, which has no place", name, part)
		}
	}
	if places := strings.Count(page, `sse-swap="`); places != len(parts) || strings.Contains(string(parts["pulse"]), "cannot be read") {
		t.Errorf("%s: %d places for %d parts, %s", name, places, len(parts), parts["pulse"])
	}
}

func TestReadersOfDifferentScopesShareNoStream(t *testing.T) {
	t.Parallel()
	kind := pageKinds["jobs"]
	if one, other := (&request{scope: route.Viewer}), (&request{scope: route.Operator}); one.feed(kind) == other.feed(kind) {
		t.Error("readers of different scopes share a stream")
	}
}
