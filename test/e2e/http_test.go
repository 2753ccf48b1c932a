package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestProbesAndDocuments(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond)
	c.startAll("a", "b")
	id, _ := c.leader(0)
	other := map[string]string{"a": "b", "b": "a"}[id]
	leader, standby := c.nodes[id].listen, c.nodes[other].listen

	for _, node := range []string{leader, standby} {
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/cluster/status", "/cluster/leader", "/cluster/health", "/", "/jobs", "/crons/second", "/api/v1/leaders"} {
			eventually(t, 5*time.Second, path+" answers", func() bool { return status(node, path) == http.StatusOK })
		}
	}
	for node, want := range map[string]int{leader: http.StatusOK, standby: http.StatusServiceUnavailable} {
		code, _, header := get(node, "/leader/scheduler")
		if code != want || header.Get("Forge-Leader-Node") != id {
			t.Errorf("/leader/scheduler: %d, leader %q; want %d, %q", code, header.Get("Forge-Leader-Node"), want, id)
		}
	}
	_, body, _ := get(leader, "/metrics")
	for _, want := range []string{
		`forge_leader_is_leader{node_id="` + id + `",role="scheduler"} 1`,
		`forge_leader_elections_total{node_id="` + id + `",result="won",role="scheduler"} 1`,
		`forge_leader_failovers_total{node_id="` + id + `",role="scheduler"} 0`,
		`forge_leader_tenure_seconds{node_id="` + id + `",role="scheduler"}`,
		`forge_cron_ticks_total{cron="second",verdict="fired"}`,
		`forge_job_finished_total{kind="second",outcome="failed"}`,
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}
