package e2e

import "testing"

const fairQueue = `
[node]
slots = 2

[queues.mail]
fair_by = "args.tenant"

[jobs.send]
kind = "sql"
queue = "mail"
statement = "SELECT pg_sleep(0.1)"
`

// A tenant's single job does not wait for the backlog of another tenant, also after a failover.
func TestFairQueueServesEachTenant(t *testing.T) {
	t.Parallel()
	c := newCluster(t, fairQueue+steady)
	c.startAll("a", "b")
	eventually(t, "the queue's index is ready", func() bool {
		return c.number(`SELECT count(*) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relname LIKE 'forge\_fair\_%' AND indisvalid`) == 1
	})
	c.exec(`SELECT count(*) FROM forge_enqueue_many((SELECT jsonb_agg(jsonb_build_object('kind', 'send', 'args', jsonb_build_object('tenant', 'big'))) FROM generate_series(1, 400)))`)
	c.servesAtOnce("small")
	id, term := c.leader(0)
	c.nodes[id].Kill()
	c.leader(term)
	c.servesAtOnce("other")
}

// servesAtOnce enqueues one job of a tenant and waits until it has ended, long before the
// backlog has.
func (c *cluster) servesAtOnce(tenant string) {
	c.t.Helper()
	c.exec(`SELECT forge_enqueue('send', '{"tenant": "` + tenant + `"}')`)
	const open = `SELECT count(*) FROM river_job WHERE args ->> 'tenant' = $1 AND finalized_at IS NULL`
	eventually(c.t, "the job of "+tenant, func() bool { return c.number(open, tenant) == 0 })
	// The backlog shrinks until this test reads it, so what counts is when each job ended.
	if left := c.number(`
SELECT count(*) FROM river_job AS b JOIN river_job AS j ON j.args ->> 'tenant' = $1
WHERE b.args ->> 'tenant' = 'big' AND (b.finalized_at IS NULL OR b.finalized_at > j.finalized_at)`, tenant); left < 100 {
		c.t.Errorf("%d of 400 jobs were left when the one of %s had ended; want most", left, tenant)
	}
}
