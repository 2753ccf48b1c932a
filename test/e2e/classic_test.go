package e2e

import (
	"strings"
	"syscall"
	"testing"
)

// classic are the times that such elections are often given. They work as written,
// with warnings.
const classic = `
[cluster.leader_election]
check_interval = "5s"
lease_duration = "60s"
refresh_interval = "30s"
lock_timeout = "10s"
`

func TestClassicTimesElectAndFailOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+classic)
	_, warnings, code := c.forge("check", "--config", c.config)
	if code != 0 || !strings.Contains(warnings, "refresh_interval 30s is more than a third of lease_duration 1m") {
		t.Errorf("forge check exits with %d and warns:\n%s", code, warnings)
	}
	c.startAll("a", "b", "c")
	id, term := c.leader(0)
	c.awaitRoles("")
	eventually(t, "the node warns", func() bool {
		return strings.Contains(c.nodes[id].output.String(), "one lost refresh may cost the lead")
	})
	found, _, code := c.doctor()
	if code != 0 || !found.has("lease", "ok", "lease 1m, renewed each 30s, trusted for 48s") {
		t.Errorf("the doctor exits with %d: %+v", code, found)
	}
	eventually(t, "a deputy", func() bool { return len(c.deputies()) > 0 })
	c.awaitTicks(term)
	c.signal(id, syscall.SIGKILL)
	dead := id
	if id, _ = c.leader(term); id == dead { // long before a lease has passed
		t.Errorf("%s leads on", id)
	}
	if n := c.number(`SELECT count(*) FROM forge_leader_history WHERE role = 'scheduler' AND end_reason = 'crashed'`); n != 1 {
		t.Errorf("%d tenures ended as crashed", n)
	}
	delete(c.nodes, dead)
	c.settle()
	c.demandEveryTickOnce("second")
}
