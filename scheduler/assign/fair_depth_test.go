package assign_test

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// manyHeld is more jobs than a leader could reasonably remember one by one.
const manyHeld = 25_000

// A job of a fair queue starts behind many held jobs of its own tenant, while other tenants have
// jobs that can start. The held jobs are paused, or of a kind that no node works.
func TestFairQueueReachesPastManyHeldJobs(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{"paused": "held", "without a node": "unknown"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.applyQueues(t, `"mail": {"fair_by": "args.tenant"}`)
			c.exec(t, `INSERT INTO river_queue (name, updated_at) VALUES ('mail', now())`)
			order := jobstore.QueuePauseOrder{Jobs: jobstore.JobSelection{Kind: "held"}}
			if _, _, err := jobstore.New(c.pool).PauseQueue(t.Context(), "mail", order); err != nil {
				t.Fatal(err)
			}
			c.insertMail(t, manyHeld, "a", "{}")
			c.exec(t, `UPDATE river_job SET kind = $1`, kind)
			c.insertMail(t, 1, "a", "{}")
			c.exec(t, `VACUUM ANALYZE river_job`)
			c.join(t, nodestore.Node{NodeID: "a", Slots: 10, Queues: map[string]int{"mail": 10}, Kinds: []string{"k", "held"}})
			c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
			c.awaitFairIndex(t, "tenant")
			began := time.Now()
			c.waitFor(t, "the job behind the held ones", func() bool { return c.count(t, `state = 'running'`) == 1 })
			t.Logf("it started after %s", time.Since(began))
		})
	}
}
