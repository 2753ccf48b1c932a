package e2e

import (
	"strings"
	"testing"

	"github.com/forge-scheduler/forge/test/nodes"
)

const cellConfig = everySecond + `
[queues.receipts]

[jobs.send_receipt]
kind = "sql"
queue = "receipts"
statement = "SELECT 1"
` + steady

const (
	receiptsSQL  = `SELECT count(*) FROM river_job WHERE kind = 'send_receipt' AND args ->> 'tenant' = $1`
	completedSQL = receiptsSQL + ` AND state = 'completed'`
	startedSQL   = receiptsSQL + ` AND attempt > 0`
	unendedSQL   = `SELECT count(*) FROM river_job WHERE finalized_at IS NULL AND args ->> 'tenant' = $1`
)

// Two clusters on databases of their own are cells, and one program enqueues into both by tenant.
// A cell without nodes accepts jobs and does not affect the other cell. A tenant moves while its
// jobs wait, and those of the new cell start only once the old one has finished.
func TestTenantsOfTwoCells(t *testing.T) {
	t.Parallel()
	program, err := nodes.Build(t.TempDir(), "examples/cells")
	if err != nil {
		t.Fatal(err)
	}
	a, b := newCluster(t, cellConfig), newCluster(t, cellConfig)
	a.startAll("a1", "a2")
	b.start("b1")
	order := func(tenants, who string) string {
		out, errs, code := runToEnd(t, program, []string{"CELLS=a=" + a.url + " b=" + b.url, "TENANTS=" + tenants}, strings.Fields(who)...)
		if code != 0 {
			return errs
		}
		return out
	}
	awaitCompleted := func(c *cluster, tenant string, want int64) {
		t.Helper()
		eventually(t, "the receipts of "+tenant, func() bool { return c.number(completedSQL, tenant) == want })
	}

	said := order("acme=a globex=b", "acme globex acme")
	if strings.Count(said, "in cell a") != 2 || strings.Count(said, "in cell b") != 1 {
		t.Errorf("the program said %q", said)
	}
	awaitCompleted(a, "acme", 2)
	awaitCompleted(b, "globex", 1)
	if a.number(receiptsSQL, "globex")+b.number(receiptsSQL, "acme") > 0 {
		t.Error("jobs are in a cell of other tenants")
	}
	if said := order("acme=a globex=b", "initech"); !strings.Contains(said, `tenant "initech" has no cell`) {
		t.Errorf("an unknown tenant: %q", said)
	}

	b.nodes["b1"].Kill()
	order("acme=a globex=b", "globex acme")
	awaitCompleted(a, "acme", 3)

	a.must("queue", "pause", "receipts", "--key", "tenant=globex", "--reason", "it moves here")
	order("acme=a globex=a", "globex acme")
	awaitCompleted(a, "acme", 4)
	if started := a.number(startedSQL, "globex"); started > 0 {
		t.Errorf("%d jobs started in the new cell before the old one had finished", started)
	}
	b.start("b2")
	eventually(t, "the end of the old cell's jobs", func() bool { return b.number(unendedSQL, "globex") == 0 })
	awaitCompleted(b, "globex", 2)
	a.must("queue", "resume", "receipts", "--key", "tenant=globex")
	awaitCompleted(a, "globex", 1)

	a.stopAll()
	a.demandEveryTickOnce("second")
}
