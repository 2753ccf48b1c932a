package e2e

import (
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// A server that grants each session lock to everyone would give each role several leaders. Nodes
// refuse it, unless leases elect: then each tick fires once.
func TestServerWithoutSessionLocks(t *testing.T) {
	t.Parallel()
	url := pgtest.StubURL(t, pgtest.URL(t), pgtest.GrantsEveryLock)
	refused := clusterOn(t, url, everySecond)
	_, errs, code := forgeWith(t, []string{"FORGE_DATABASE_URL=" + url}, "serve", "--config", refused.config, "--node-id", "a", "--listen", nodes.AnyPort)
	if code == 0 || !strings.Contains(errs, "two sessions got the same lock") || !strings.Contains(errs, `strategy = "lease"`) {
		t.Errorf("exit %d: %s", code, errs)
	}
	c := clusterOn(t, url, everySecond+byLease)
	c.startAll("a", "b")
	_, term := c.leader(0)
	c.awaitTicks(term)
	c.settle()
	c.demandEveryTickOnce("second")
}
