package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// A leader hangs in the midst of a tick while its session lives: it loses the
// role, stays a node, and no tick is lost or doubled.
func TestHangingLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, everySecond+patient+"[cluster]\ndead_threshold = \"1m\"\n")
	orders := filepath.Join(t.TempDir(), "orders")
	hangs := c.startProgram(failpointBinary(t), "a", "FORGE_FAILPOINTS=@"+orders)
	_, term := c.leader(0)
	c.awaitRoles("a")
	c.start("b")
	c.awaitTicks(term)
	rewrite(t, orders, "crons/before-commit=sleep:30s")
	id, next := c.leader(term)
	if id != "b" {
		t.Errorf("%s leads term %d", id, next)
	}
	if n := c.number(`SELECT count(*) FROM forge_leader_history
		WHERE role = 'scheduler' AND term = $1 AND end_reason IN ('lease_expired', 'stepped_down')`, term); n != 1 {
		t.Error("the hanging leader did not give the role up")
	}
	if n := c.number(`SELECT count(*) FROM forge_nodes WHERE node_id = 'a' AND state = 'active'`); n != 1 {
		t.Error("the node is gone, not its work alone")
	}
	if n := c.number(`SELECT count(*) FROM forge_leaders WHERE node_id = 'a'`); n != 2 {
		t.Errorf("the node leads %d other roles; want both still", n)
	}
	eventually(t, "the hanging work has returned", func() bool {
		return strings.Contains(hangs.output.String(), "returned at last")
	})
	c.settle()
	c.demandEveryTickOnce("second")
}
