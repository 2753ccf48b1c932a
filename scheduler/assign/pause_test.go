package assign_test

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// The leader offers no job of a paused part of a queue, offers the others behind it, and offers
// all after the pause, without waiting for the next read of the nodes.
func TestPausedJobsAreNotOffered(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 500})
	store, order := jobstore.New(c.pool), jobstore.QueuePauseOrder{Jobs: jobstore.JobSelection{Key: "args.tenant", Value: "big"}}
	c.exec(t, `INSERT INTO river_queue (name, updated_at) VALUES ('default', now()) ON CONFLICT DO NOTHING`)
	if _, changed, err := store.PauseQueue(t.Context(), "default", order); err != nil || !changed {
		t.Fatal(changed, err)
	}
	c.lead(t, fence, assign.LeastLoaded)
	c.awaitCredit(t, n)
	own := n.claimed()
	c.exec(t, `INSERT INTO river_job (kind, args, priority) SELECT 'k', '{"tenant": "big"}', 1 FROM generate_series(1, 300)`)
	c.insert(t, 10, "k", "default", "")
	c.waitFor(t, "the other jobs", func() bool { return n.claimed() == own+10 })
	c.insert(t, 10, "k", "default", "")
	c.waitFor(t, "the jobs that came later", func() bool { return n.claimed() == own+20 })
	paused, err := store.PausedJobs(t.Context(), n.jobsOffered())
	if err != nil || len(slices.Compact(paused)) > 0 {
		t.Errorf("paused jobs were offered: %v, %v", paused, err)
	}
	if waiting := testutil.ToFloat64(c.metrics.AssignmentWaiting); waiting != 0 {
		t.Errorf("%v jobs wait for a node", waiting)
	}
	if _, changed, err := store.ResumeQueue(t.Context(), "default", order); err != nil || !changed {
		t.Fatal(changed, err)
	}
	c.waitFor(t, "all jobs", func() bool { return n.claimed() == own+320 })
}

// In a queue that is read in turns, too: the jobs of a paused kind do not hold the others of
// their key back.
func TestPausedJobsOfFairQueue(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.makeLeader(t, 1)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 500, Kinds: []string{"k", "held", "a"}})
	c.applyQueues(t, `"default": {"fair_by": "args.tenant"}`)
	store, order := jobstore.New(c.pool), jobstore.QueuePauseOrder{Jobs: jobstore.JobSelection{Kind: "held"}}
	c.exec(t, `INSERT INTO river_queue (name, updated_at) VALUES ('default', now()) ON CONFLICT DO NOTHING`)
	if _, changed, err := store.PauseQueue(t.Context(), "default", order); err != nil || !changed {
		t.Fatal(changed, err)
	}
	c.lead(t, fence, assign.LeastLoaded)
	c.awaitCredit(t, n)
	c.waitFor(t, "the index", func() bool {
		indexes, err := store.FairIndexes(t.Context())
		return err == nil && len(indexes) == 1 && indexes[0].Ready
	})
	own := n.claimed()
	c.exec(t, `INSERT INTO river_job (kind, args) SELECT 'held', '{"tenant": "t"}' FROM generate_series(1, 60)`)
	c.exec(t, `INSERT INTO river_job (kind, args) SELECT 'k', '{"tenant": "t"}' FROM generate_series(1, 10)`)
	c.insert(t, 1, "k", "default", "")
	c.waitFor(t, "the other jobs", func() bool { return n.claimed() == own+11 })
	if _, changed, err := store.ResumeQueue(t.Context(), "default", order); err != nil || !changed {
		t.Fatal(changed, err)
	}
	c.waitFor(t, "all jobs", func() bool { return n.claimed() == own+71 })
}
