package pages

import (
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// A role that no node has any more is not reported as vacant. A role that a present node
// has is.
func TestRolesWithoutCandidatesAreNotReportedVacant(t *testing.T) {
	t.Parallel()
	now := time.Now()
	leaders := []leaderstore.Leader{
		{Role: cluster.SchedulerRole, NodeID: "a", LeaseUntil: now.Add(time.Second), Now: now},
		{Role: "billing", Term: 4, Now: now},
	}
	for _, test := range []struct {
		node nodestore.Node
		want string
	}{
		{nodestore.Node{NodeID: "a", State: nodestore.Active, Roles: []string{"scheduler"}}, "Every role has a leader"},
		{nodestore.Node{NodeID: "a", State: nodestore.Active, Roles: []string{"scheduler", "billing"}}, "No node leads as billing"},
	} {
		facts := clusterFacts{now: now, leaders: leaders, nodes: []nodestore.Node{test.node}}
		if h := judge(facts, nil, nil, facts.now); h.Headline != test.want {
			t.Errorf("roles %v: %q; want %q", test.node.Roles, h.Headline, test.want)
		}
		missed := strings.Contains(test.want, "No node")
		if tile := rolesTile(facts); (tile.Tone == "bad") != missed {
			t.Errorf("roles %v: tile %+v", test.node.Roles, tile)
		}
		if card := leaderCards(facts, cluster.Self{})[1]; card.Idle == missed || card.Title != "Billing" || card.Duty == "" {
			t.Errorf("roles %v: card %+v", test.node.Roles, card)
		}
	}
}
