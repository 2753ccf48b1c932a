package dashboard

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/leaderstore"
)

// TestLeadersShowTheirRates checks the page and the API: a role or node without a rate shows
// none, and the database is read once for many requests.
func TestLeadersShowTheirRates(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	for range 3 {
		page := get(t, h, "/leaders").Body.String()
		for _, want := range []string{">renewals 99.9 % of 2,400 in the last hour<", ">heartbeats 100 % of 10,800 since it started <", ">3h 00m ago<"} {
			if strings.Count(page, want) != 1 {
				t.Errorf("the page has %q %d times, want it once", want, strings.Count(page, want))
			}
		}
		items := decode[web.List[map[string]any]](t, get(t, h, "/api/v1/leaders")).Items
		scheduler := items[0]
		for _, other := range items[1:] {
			if other["renewals"] != nil || other["heartbeats"] != nil {
				t.Errorf("rates of which nothing is recorded: %v", other)
			}
		}
		want := map[string]any{"succeeded": 2398.0, "attempts": 2400.0, "since": "2026-11-20T11:00:00Z"}
		if diff := cmp.Diff(want, scheduler["renewals"]); diff != "" {
			t.Errorf("renewals (-want +got):\n%s", diff)
		}
	}
	if c.RatesRead != 1 {
		t.Errorf("the rates were read %d times, want once", c.RatesRead)
	}
}

// The page of a vacant role announces a leader only if a node may lead it.
func TestVacantRoleShowsWhetherANodeMayLead(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Leaders = append(c.Leaders, leaderstore.Leader{Role: "metrics_aggregator", Now: dashboardtest.Epoch})
	const promise, nobody = "A running node becomes its leader", "No running node can lead it"
	if page := get(t, handlerOf(c), "/leaders").Body.String(); !strings.Contains(page, promise) || strings.Contains(page, nobody) {
		t.Error("no leader is promised though every node stands for the role")
	}
	for i := range c.Nodes {
		c.Nodes[i].Roles = []string{"worker", cluster.SchedulerRole}
	}
	if page := get(t, handlerOf(c), "/leaders").Body.String(); strings.Contains(page, promise) || !strings.Contains(page, nobody) {
		t.Error("a leader is promised though no node stands for the role")
	}
}
