package pages

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

func TestLastFailoverIsTheNewestUnplannedChange(t *testing.T) {
	t.Parallel()
	at := func(ago int) time.Time { return dashboardtest.Epoch.Add(-time.Duration(ago) * time.Minute) }
	tenures := []leaderstore.Tenure{
		{Role: "a", Term: 4, AcquiredAt: at(1)},
		{Role: "b", Term: 2, AcquiredAt: at(2)},
		{Role: "a", Term: 3, AcquiredAt: at(3), EndReason: "transferred"},
		{Role: "b", Term: 1, AcquiredAt: at(4), EndReason: "evicted"},
		{Role: "a", Term: 2, AcquiredAt: at(5), EndReason: "crashed"},
	}
	if got := lastFailover(dashboardtest.Epoch, tenures); got == nil || got.Path != "/leaders/b/terms/2" {
		t.Errorf("%+v", got)
	}
	if got := lastFailover(dashboardtest.Epoch, tenures[:3]); got != nil {
		t.Errorf("without a failover: %+v", got)
	}
}

func TestAlertsLinkToTheRoleThatTheyAreAbout(t *testing.T) {
	t.Parallel()
	facts := clusterFacts{leaders: []leaderstore.Leader{{Role: "scheduler", Term: 3}, {Role: "metrics_aggregator"}}}
	for _, test := range []struct{ label, condition, want string }{
		{"scheduler", "x", "/leaders/scheduler/terms/latest"},
		{"", `absent(forge_leader_is_leader{node_id!="x", role="scheduler"})`, "/leaders/scheduler/terms/latest"},
		{"", `sum(forge_leader_is_leader{role='scheduler'}) == 0`, "/leaders/scheduler/terms/latest"},
		{"metrics_aggregator", "x", ""}, // never led
		{"unknown", "x", ""},
		{"", `up{my_role="scheduler"}`, ""},
		{"", "vector(1)", ""},
	} {
		if got := alertRolePath(facts, map[string]string{"role": test.label}, test.condition); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

func TestEventsLinkToTheirChangeOfLeader(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		eventstore.LeaderElected: "/leaders/r/terms/7", eventstore.LeaderLost: "/leaders/r/terms/8", eventstore.LeaseRenewed: "", eventstore.NodeDead: "",
	} {
		if got := eventPath(kind, "r", 7); got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
	if got := eventPath(eventstore.LeaderLost, "", 0); got != "" {
		t.Errorf("without a role: %q", got)
	}
}
