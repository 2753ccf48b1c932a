package e2e

import (
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/test/nodes"
)

// A server that grants each session lock to everyone would give each role several leaders, and one
// that drops notifications would start each job late. Nodes refuse them, unless leases elect: then
// each tick fires once.
func TestServersWithoutLocksOrNotifications(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]struct {
		fault pgtest.Fault
		found string
	}{
		"locks":         {pgtest.GrantsEveryLock, "two sessions got the same lock"},
		"notifications": {pgtest.DropsNotifications, "a notification of another session did not arrive"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.StubURL(t, pgtest.URL(t), server.fault)
			refused := clusterOn(t, url, everySecond)
			_, errs, code := forgeWith(t, []string{"FORGE_DATABASE_URL=" + url}, "serve", "--config", refused.config, "--node-id", "a", "--listen", nodes.AnyPort)
			if code == 0 || !strings.Contains(errs, server.found) || !strings.Contains(errs, `set it to "lease" on every node`) {
				t.Errorf("exit %d: %s", code, errs)
			}
			c := clusterOn(t, url, everySecond+byLease)
			c.startAll("a", "b")
			_, term := c.leader(0)
			c.awaitTicks(term)
			c.settle()
			c.demandEveryTickOnce("second")
		})
	}
}
