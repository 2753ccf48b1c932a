package assign_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// limitedOffers returns the offers of limited jobs that a node has received.
func (f *fakeNode) limitedOffers() (offers []wire.Offer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, offer := range f.offers {
		if offer.Limited {
			offers = append(offers, offer)
		}
	}
	return offers
}

func (c *cluster) limitVersion(t *testing.T) int64 {
	t.Helper()
	version, _, err := jobstore.New(c.pool).LimitVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// A leader recalls the offers of earlier ones before it counts. When an offer of its own is lost, it
// recalls it before it offers the place again.
func TestLostCountedOffersAreRecalled(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 1, Key: "args.tenant"})
	lost := 0
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50}, func(f *fakeNode) {
		f.ignoreOffer = func(offer wire.Offer) bool {
			if len(offer.Jobs) > 0 {
				lost++
			}
			return len(offer.Jobs) > 0 && lost == 1
		}
	})
	before := c.limitVersion(t)
	c.insertTenant(t, 2, "k", "acme")
	c.leadWithShortTimeout(t, c.makeLeader(t, 1))
	c.waitFor(t, "a job after the one whose offer was lost", func() bool { return c.count(t, "state = 'running'") == 1 })
	offers := n.limitedOffers()
	first, last := offers[0], offers[len(offers)-1]
	if first.LimitVersion <= before || last.LimitVersion <= first.LimitVersion || len(first.Locks["default"][0]) != 1 || len(last.Locks["default"][0]) != 1 {
		t.Errorf("before version %d; the first offer is %+v, the last %+v", before, first, last)
	}
	for _, offer := range offers {
		if ids := offer.Jobs["default"]; len(ids) != 1 || offer.LimitVersion == first.LimitVersion && !slices.Equal(ids, first.Jobs["default"]) {
			t.Errorf("offered %v with one place, after %v in the same version", ids, first.Jobs["default"])
		}
	}
}

// A leader that finds other limits than those under which it has counted reads them again, also
// without a notification.
func TestLeaderFindsChangedLimits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 1, Key: "args.tenant"})
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.insertTenant(t, 1, "k", "acme")
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
	c.waitFor(t, "the first job", func() bool { return n.claimed() == 1 })
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 3, Key: "args.tenant"})
	c.insertTenant(t, 4, "k", "acme")
	c.waitFor(t, "the changed limit to be reached", func() bool { return c.count(t, "state = 'running'") == 3 })
	if offers := n.limitedOffers(); offers[len(offers)-1].LimitVersion != c.limitVersion(t) {
		t.Errorf("offered under version %d, want %d", offers[len(offers)-1].LimitVersion, c.limitVersion(t))
	}
}

// If claims keep the leader from recalling offers, limited jobs wait. Other jobs do not.
func TestOnlyLimitedJobsWaitForTheRecall(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "job", Name: "rare", Most: 1})
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50, Kinds: []string{"k", "rare"}})
	err := pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT FROM forge_limits FOR SHARE`); err != nil {
			return err
		}
		c.insertTenant(t, 1, "rare", "acme")
		c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
		c.awaitCredit(t, n)
		c.insertTenant(t, 3, "k", "acme")
		c.waitFor(t, "the jobs without a limit", func() bool { return n.claimed() == 3 })
		if offers := n.limitedOffers(); len(offers) > 0 {
			t.Errorf("offered %v during the claim", offers)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.waitFor(t, "the limited job", func() bool { return n.claimed() == 4 })
}

// Nodes of an earlier version get offers that say nothing about counts.
func TestEarlierNodesGetUncountedOffers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 1, Key: "args.tenant"})
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50}, func(f *fakeNode) { f.earlier = true })
	c.insertTenant(t, 2, "k", "acme")
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
	c.waitFor(t, "the job", func() bool { return n.claimed() == 1 })
	for _, offer := range n.limitedOffers() {
		for _, locks := range offer.Locks["default"] {
			if len(locks) > 0 {
				t.Errorf("offered %+v", offer)
			}
		}
	}
}

// A limited job whose offer is lost goes to another node, even if the first one has more room.
func TestLostLimitedOffersGoToAnotherNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 1, Key: "args.tenant"})
	silent := c.join(t, nodestore.Node{NodeID: "a", Slots: 50}, func(f *fakeNode) {
		f.ignoreOffer = func(offer wire.Offer) bool { return len(offer.Jobs) > 0 }
	})
	other := c.join(t, nodestore.Node{NodeID: "b", Slots: 2, Kinds: []string{"k", "own"}})
	c.leadWithShortTimeout(t, c.makeLeader(t, 1))
	c.awaitCredit(t, silent, other)
	c.insertTenant(t, 1, "own", "other")
	c.waitFor(t, "the other node's credit", func() bool { return other.claimed() == 1 })
	c.insertTenant(t, 1, "k", "acme")
	c.waitFor(t, "the other node", func() bool { return other.claimed() == 2 })
	if lost := silent.offered(); lost > 2 {
		t.Errorf("offered %d times to the silent node", lost)
	}
}
