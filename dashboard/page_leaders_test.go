package dashboard

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/leaderstore"
)

func TestEventsInWords(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{}`:                    "",
		`{"reason": "crashed"}`: "crashed",
		`{"gap_ms": 12.4}`:      "after 12 ms without a leader",
		`{"after_ms": 92}`:      "after 92 ms",
		`{"causes": ["node a is dead", "nobody leads scheduler"]}`:           "node a is dead, nobody leads scheduler",
		`{"reason": "stepped_down", "to": "b", "by": "eve", "gap_ms": 1500}`: "stepped down, to b, by eve, after 1.50 s without a leader",
		`{"reason": {"of": "another version"}}`:                              "",
	} {
		if got := eventWords(json.RawMessage(data)); got != want {
			t.Errorf("%s: %q, want %q", data, got, want)
		}
	}
}

// A vacant role promises a leader only if some node may be it.
func TestVacantRoleSaysWhoMayLead(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.leaders = append(c.leaders, leaderstore.Leader{Role: "metrics_aggregator", Now: epoch})
	const promise, nobody = "The first node that is up takes it", "No node that is up stands for it"
	if page := get(t, c.handler(), "/leaders").Body.String(); !strings.Contains(page, promise) || strings.Contains(page, nobody) {
		t.Error("no leader is promised though every node stands for the role")
	}
	for i := range c.nodes {
		c.nodes[i].Roles = []string{"worker", SchedulerRole}
	}
	if page := get(t, c.handler(), "/leaders").Body.String(); strings.Contains(page, promise) || !strings.Contains(page, nobody) {
		t.Error("a leader is promised though no node stands for the role")
	}
}
