package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestProbesAndDocuments(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+unhurried)
	c.startAll("a", "b")
	id, _ := c.leader(0)
	leader, standby := c.nodes[id].listen(), c.nodes[other(id)].listen()

	for _, node := range []string{leader, standby} {
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/cluster/status", "/cluster/leader", "/cluster/health", "/", "/jobs", "/crons/second", "/api/v1/leaders"} {
			eventually(t, path+" answers", func() bool { return status(node, path) == http.StatusOK })
		}
	}
	for node, want := range map[string]int{leader: http.StatusOK, standby: http.StatusServiceUnavailable} {
		eventually(t, fmt.Sprintf("/leader/scheduler: %d and %q", want, id), func() bool {
			code, _, header := get(node, "/leader/scheduler")
			return code == want && header.Get("Forge-Leader-Node") == id
		})
	}
	for _, want := range []string{
		`forge_leader_is_leader{node_id="` + id + `",role="scheduler"} 1`,
		`forge_leader_elections_total{node_id="` + id + `",result="won",role="scheduler"} 1`,
		`forge_leader_failovers_total{node_id="` + id + `",role="scheduler"} 0`,
		`forge_leader_tenure_seconds{node_id="` + id + `",role="scheduler"}`,
		`forge_cron_ticks_total{cron="second",verdict="fired"}`,
		`forge_job_finished_total{kind="second",outcome="failed"}`,
	} {
		eventually(t, "/metrics tells "+want, func() bool {
			_, body, _ := get(leader, "/metrics")
			return strings.Contains(string(body), want)
		})
	}
}
