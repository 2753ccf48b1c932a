package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// loadedCluster has a cron of each outcome.
const loadedCluster = patient + `
[metrics]
scrape_interval = "1s"

[jobs.broken]
kind = "shell"
command = ["sh", "-c", "echo wrong >&2; exit 1"]
retry = { max_attempts = 1 }

[[crons]]
name = "pulse"
schedule = "@every 1s"
command = ["date"]

[[crons]]
name = "broken"
schedule = "@every 1s"
job = "broken"

[[alerts]]
name = "no_scheduler_leader"
condition = "sum(forge_leader_is_leader{role='scheduler'}) == 0"
`

// panelQuery is a query of the dashboard for Grafana.
type panelQuery struct{ panel, expr string }

// The dashboard and the rules of deploy/ on a Prometheus that scrapes a cluster under load:
// no query is wrong, no panel is empty, and every rule is evaluated.
func TestDashboardHasNoEmptyPanel(t *testing.T) {
	t.Parallel()
	m := &monitoring{dir: t.TempDir(), c: newCluster(t, loadedCluster), alertmanager: "127.0.0.1:9"} // nobody listens there
	c := m.c
	c.startAll("a", "b")
	c.awaitRoles("")
	m.scrape(c.nodes["a"].listen(), c.nodes["b"].listen(), c.nodes["b"].listen())
	m.launch()
	m.awaitValue(`sum(up{job="forge"})`, "2")
	if _, stderr, code := c.forge("leader", "step-down", "scheduler"); code != 0 {
		t.Fatalf("forge leader step-down: exit %d %s", code, stderr)
	}
	empty := dashboardQueries(t)
	if len(empty) < 30 {
		t.Fatalf("the dashboard has %d queries", len(empty))
	}
	t.Cleanup(func() {
		if len(empty) > 0 {
			t.Logf("empty: %q", empty)
		}
	})
	eventually(t, "every panel has values", func() bool {
		empty = slices.DeleteFunc(empty, func(q panelQuery) bool { return m.hasValue(q) })
		return len(empty) == 0
	})
	eventually(t, "every rule is evaluated", m.everyRuleIsHealthy)
	c.stopAll()
}

// dashboardQueries returns the queries of all panels with the range that Grafana would set.
func dashboardQueries(t *testing.T) (all []panelQuery) {
	t.Helper()
	body, err := os.ReadFile("../../deploy/grafana/forge.json")
	if err != nil {
		t.Fatal(err)
	}
	board := decode[struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}](t, string(body))
	for _, panel := range board.Panels {
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("the panel %q has no query", panel.Title)
		}
		for _, target := range panel.Targets {
			all = append(all, panelQuery{panel.Title, strings.ReplaceAll(target.Expr, "$__rate_interval", "20s")})
		}
	}
	return all
}

// hasValue reports whether a query has a value other than NaN.
func (m *monitoring) hasValue(q panelQuery) bool {
	m.c.t.Helper()
	code, body, _ := get(m.address, "/api/v1/query?"+url.Values{"query": {q.expr}}.Encode())
	if code != 200 {
		m.c.t.Fatalf("%s: %s: %d %s", q.panel, q.expr, code, body)
	}
	answer := decode[struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}](m.c.t, string(body))
	for _, series := range answer.Data.Result {
		if value, err := strconv.ParseFloat(fmt.Sprint(series.Value[1]), 64); err == nil && !math.IsNaN(value) {
			return true
		}
	}
	return false
}

func (m *monitoring) everyRuleIsHealthy() bool {
	m.c.t.Helper()
	_, body, _ := get(m.address, "/api/v1/rules")
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return false
	}
	healthy := 0
	for _, group := range answer.Data.Groups {
		for _, rule := range group.Rules {
			if rule.LastError != "" {
				m.c.t.Fatalf("%s: %s", rule.Name, rule.LastError)
			}
			if rule.Health != "ok" {
				return false
			}
			healthy++
		}
	}
	return healthy > 20
}
