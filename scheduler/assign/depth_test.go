package assign_test

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// A place that becomes free goes to the first waiting job of its key, even if that is behind many
// jobs of another key without a place, and the leader reads a long backlog far behind both.
func TestFreePlaceInMiddleOfHeldJobs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: jobstore.ScopeQueue, Name: "mail", Most: 1, Key: "args.tenant"})
	c.insertMail(t, 1000, "a", "{}")
	c.insertMail(t, 5, "b", "{}")
	const others = 30_000
	c.exec(t, `INSERT INTO river_job (kind, queue, args, priority) SELECT 'k', 'mail', jsonb_build_object('tenant', i), 2 FROM generate_series(1, $1::int) AS i`, others)
	c.exec(t, `VACUUM ANALYZE river_job`)
	c.join(t, nodestore.Node{NodeID: "a", Slots: 10, Queues: map[string]int{"mail": 10}})
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
	c.waitFor(t, "jobs of the backlog", func() bool { return c.count(t, `state = 'running' AND priority = 2`) > 100 })
	c.exec(t, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE state = 'running' AND args @> '{"tenant": "b"}'`)
	began := time.Now()
	c.waitFor(t, "the next job of the key", func() bool { return c.count(t, `state = 'running' AND args @> '{"tenant": "b"}'`) == 1 })
	t.Logf("it started after %s", time.Since(began))
	if waiting := c.count(t, `state = 'available' AND priority = 2`); waiting == 0 {
		t.Error("the whole backlog behind it came first")
	}
}
