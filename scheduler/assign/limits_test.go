package assign_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

func (c *cluster) limit(t *testing.T, limits ...jobstore.Limit) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error { return jobstore.New(tx).SetLimits(t.Context(), limits) })
	if err != nil {
		t.Fatal(err)
	}
}

// finish completes the running jobs of a queue, and notifies the leader.
func (c *cluster) finish(t *testing.T, queue string) {
	t.Helper()
	c.exec(t, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE state = 'running' AND queue = $1`, queue)
	c.exec(t, `SELECT pg_notify('public.river_insert', '{}')`)
}

// Running jobs use the places of a limit even if another term assigned them. Jobs without
// a limit are not delayed, and a place is free again when its job ends.
func TestOffersRespectLimit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "narrow", Most: 3}, jobstore.Limit{Scope: "job", Name: "rare", Most: 2})
	c.exec(t, `INSERT INTO river_job (kind, queue, args, state, attempted_by) VALUES ('k', 'narrow', '{}', 'running', '{gone}')`)
	both := map[string]int{"default": 50, "narrow": 50}
	kinds := []string{"k", "rare"}
	nodes := []*fakeNode{
		c.join(t, nodestore.Node{NodeID: "a", Slots: 50, Queues: both, Kinds: kinds}),
		c.join(t, nodestore.Node{NodeID: "b", Slots: 50, Queues: both, Kinds: kinds}),
	}
	c.insert(t, 8, "k", "narrow", "")
	c.insert(t, 5, "rare", "default", "")
	c.insert(t, 9, "k", "default", "")
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)

	running := func(where string) int { return c.count(t, "state = 'running' AND "+where) }
	c.waitFor(t, "the jobs without a limit", func() bool { return running("queue = 'default' AND kind = 'k'") == 9 })
	c.waitFor(t, "the limits to be reached", func() bool { return running("queue = 'narrow'") == 3 && running("kind = 'rare'") == 2 })
	c.finish(t, "default")
	c.waitFor(t, "two more jobs of the kind", func() bool {
		return running("kind = 'rare'") == 2 && c.count(t, "kind = 'rare' AND state = 'completed'") == 2
	})
	for range 3 {
		c.finish(t, "narrow")
		c.waitFor(t, "the places to be taken again", func() bool {
			return running("queue = 'narrow'") == 3 || c.count(t, "queue = 'narrow' AND state = 'available'") == 0
		})
	}
	limited := map[int64]bool{}
	for _, n := range nodes {
		n.offeredAs(t, limited)
	}
	for id, is := range limited {
		if is != (c.count(t, fmt.Sprintf("id = %d AND (queue = 'narrow' OR kind = 'rare')", id)) == 1) {
			t.Errorf("job %d was offered with limited %v", id, is)
		}
	}
}

// offeredAs records for each offered job whether the offer was marked as limited.
func (f *fakeNode) offeredAs(t *testing.T, limited map[int64]bool) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, offer := range f.offers {
		for _, ids := range offer.Jobs {
			for _, id := range ids {
				limited[id] = offer.Limited
			}
		}
	}
}

// An unclaimed offer uses a place until it times out.
func TestUnclaimedOfferCountsTowardLimit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 1})
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50, Queues: map[string]int{"default": 50, "free": 50}}, func(f *fakeNode) {
		f.ignoreOffer = func(offer wire.Offer) bool { return len(offer.Jobs["default"]) > 0 }
	})
	c.insert(t, 5, "k", "default", "")
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
	c.waitFor(t, "an offer", func() bool { return n.offered() > 0 })
	// Each of these jobs is offered in a later step, which counts the places again.
	const others = 10
	for i := range others {
		c.insert(t, 1, "k", "free", "")
		c.waitFor(t, "the jobs without a limit", func() bool { return n.claimed() == i+1 })
	}
	if limited := len(distinct(n.jobsOffered())) - others; limited != 1 {
		t.Errorf("%d jobs were offered for one place", limited)
	}
}

// A lost offer frees its place for exactly one job.
func TestLostOfferFreesItsPlace(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 1})
	lost := false
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50}, func(f *fakeNode) {
		f.ignoreOffer = func(offer wire.Offer) bool {
			lose := !lost && len(offer.Jobs) > 0
			lost = lost || lose
			return lose
		}
	})
	c.insert(t, 5, "k", "default", "")
	c.leadWithShortTimeout(t, c.makeLeader(t, 1))
	c.waitFor(t, "a claim", func() bool { return n.claimed() > 0 })
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, offer := range n.offers {
		if len(offer.Jobs["default"]) > 1 {
			t.Errorf("the jobs %v were offered at once", offer.Jobs)
		}
	}
}
