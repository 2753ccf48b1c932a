package dashboard

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
)

// Each failure leads to what happened before it.
func TestFailuresLeadToWhatChangedBefore(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	at := dashboardtest.Epoch.Add(-time.Hour)
	before := `href="/activity?filter=until%3A` + strings.ReplaceAll(at.UTC().Format(time.RFC3339Nano), ":", "%3A") + `">What changed before</a>`
	c.Jobs[0].State, c.Jobs[0].LastError, c.Jobs[0].FinalizedAt = "discarded", "exit status 1", at
	c.Ticks["backup"] = []cronstore.Tick{{Cron: "backup", Tick: at, Verdict: cronstore.Failed, Reason: "its job is gone", Count: 1}, {Cron: "backup", Tick: at.Add(-time.Hour), Verdict: cronstore.Fired, Count: 1}}
	c.Events = []eventstore.Event{{ID: 1, At: at, Type: eventstore.NodeDead, NodeID: "node-2"}, {ID: 2, At: at.Add(time.Second), Type: eventstore.NodeJoined, NodeID: "node-2", Data: json.RawMessage(`{}`)}}
	c.Nodes[0].ConfigError = "line 3"
	h := handlerOf(c)
	for path, want := range map[string]int{"/jobs/42": 1, "/crons/backup": 1, "/activity": 1} {
		if page := get(t, h, path).Body.String(); strings.Count(page, before) != want || strings.Count(page, "What changed before") != want {
			t.Errorf("%s has %d links to what changed before, want %d", path, strings.Count(page, "What changed before"), want)
		}
	}
	if page := get(t, h, "/alerts").Body.String(); !strings.Contains(page, "What changed before") {
		t.Error("the alerts have no link to what changed before")
	}
	if page := get(t, h, "/nodes").Body.String(); !strings.Contains(page, `href="/activity?filter=type%3Aconfig_rejected&#43;node%3A`) && !strings.Contains(page, `href="/activity?filter=type%3Aconfig_rejected+node%3A`) {
		t.Error("a refused file has no link to its events")
	}
}
