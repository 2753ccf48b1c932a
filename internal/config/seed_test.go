package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// seed is the file with which forge was first described. It must work as it was
// written.
const seed = `# forge.toml

[[alerts]]
name = "no_scheduler_leader"
condition = "sum(forge_leader_is_leader{role='scheduler'}) == 0"
for = "30s"
severity = "critical"
notify = ["pagerduty"]

[[alerts]]
name = "frequent_failovers"
condition = "rate(forge_leader_failovers_total[5m]) > 5"
severity = "warning"
notify = ["slack:#ops"]

# forge.toml

[cluster.leader_election]
# How often standbys check leader health
check_interval = "5s"

# Lease duration (leader must refresh before expiry)
lease_duration = "60s"

# Lease refresh interval
refresh_interval = "30s"

# Timeout for acquiring lock
lock_timeout = "10s"
`

func TestFirstFileWorksAsWritten(t *testing.T) {
	t.Parallel()
	c, report, err := parseWith(seed)
	if err != nil {
		t.Fatal(err)
	}
	e := c.Cluster.LeaderElection
	if e.CheckInterval.Std() != 5*time.Second || e.LeaseDuration.Std() != time.Minute ||
		e.RefreshInterval.Std() != 30*time.Second || e.LockTimeout.Std() != 10*time.Second {
		t.Errorf("election = %+v", e)
	}
	want := []Alert{
		{Name: "no_scheduler_leader", Condition: "sum(forge_leader_is_leader{role='scheduler'}) == 0", For: Duration(30 * time.Second), Severity: "critical", Notify: []string{"pagerduty"}},
		{Name: "frequent_failovers", Condition: "rate(forge_leader_failovers_total[5m]) > 5", Severity: "warning", Notify: []string{"slack:#ops"}},
	}
	if diff := cmp.Diff(want, c.Alerts); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
	warnings := []string{
		`forge.toml:8:11: warning: alerts[0].notify[0]: the receiver "pagerduty" is not configured; want [notify.pagerduty]`,
		`forge.toml:14:11: warning: alerts[1].notify[0]: the receiver "slack" is not configured; want [notify.slack]`,
		"forge.toml:26:20: warning: cluster.leader_election.refresh_interval: refresh_interval 30s is more than a third of lease_duration 1m: one lost refresh may cost the lead; want at most 20s",
	}
	if diff := cmp.Diff(warnings, messages(report)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
