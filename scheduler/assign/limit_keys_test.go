package assign_test

import (
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// insertTenant adds available jobs of a tenant, and notifies as River does.
func (c *cluster) insertTenant(t *testing.T, n int, kind, tenant string) {
	t.Helper()
	c.exec(t, `INSERT INTO river_job (kind, args) SELECT $1, jsonb_build_object('tenant', $2::text) FROM generate_series(1, $3)`, kind, tenant, n)
	c.exec(t, `SELECT pg_notify('public.river_insert', '{"queue": "default"}')`)
}

// The backlog of a key at its limit does not hold back the jobs of other keys behind it. A
// place that becomes free goes to the next job of its key.
func TestOffersRespectLimitByKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 2, Key: "args.tenant"}, jobstore.Limit{Scope: "job", Name: "rare", Most: 1, Key: "args.tenant"})
	c.join(t, nodestore.Node{NodeID: "a", Slots: 50, Kinds: []string{"k", "rare"}})
	c.insertTenant(t, 2000, "k", "big")
	c.insertTenant(t, 3, "rare", "small")
	c.insertTenant(t, 1, "k", "small")
	c.insertTenant(t, 1, "k", "")
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)

	count := func(tenant, state string) int {
		return c.count(t, "args ->> 'tenant' = '"+tenant+"' AND state = '"+state+"'")
	}
	c.waitFor(t, "a job of each tenant", func() bool {
		return count("big", "running") == 2 && count("small", "running") == 2 && count("", "running") == 1
	})
	for done := 2; done <= 10; done += 2 {
		c.exec(t, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE state = 'running' AND args ->> 'tenant' = 'big'`)
		c.exec(t, `SELECT pg_notify('public.river_insert', '{}')`)
		c.waitFor(t, "the places of the tenant to be taken again", func() bool { return count("big", "running") == 2 && count("big", "completed") == done })
	}
	if small := count("small", "running"); small != 2 {
		t.Errorf("%d jobs of the small tenant run", small)
	}
	c.finish(t, "default")
	c.waitFor(t, "the next rare job", func() bool { return count("small", "running") == 1 && count("big", "running") == 2 })
}

// A change of a limit applies at once to what waits.
func TestChangedLimitByKeyApplies(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 1, Key: "args.tenant"})
	c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.insertTenant(t, 8, "k", "acme")
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
	running := func() int { return c.count(t, "state = 'running'") }
	c.waitFor(t, "one job", func() bool { return running() == 1 })
	for _, most := range []int{3, 5} {
		c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: most, Key: "args.tenant"})
		c.exec(t, `SELECT pg_notify('public.forge_cron', '')`) // as after each configuration that is applied
		c.waitFor(t, "the changed limit to be reached", func() bool { return running() == most })
	}
	c.limit(t)
	c.exec(t, `SELECT pg_notify('public.forge_cron', '')`)
	c.waitFor(t, "the jobs without a limit", func() bool { return running() == 8 })
}

// A job is offered when the window of its rate has units again, and not before. Jobs of other
// keys do not wait.
func TestOffersRespectRate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 2, Key: "args.tenant", Per: 1500 * time.Millisecond})
	full := time.Now()
	c.exec(t, `INSERT INTO forge_rate_windows VALUES ('queue_rate', 'default', 'full', ARRAY[clock_timestamp()], '{2}', '{}', '{}', now() + interval '1 hour')`)
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.insertTenant(t, 1, "k", "full")
	c.insertTenant(t, 1, "k", "other")
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
	c.waitFor(t, "the job of the other tenant", func() bool { return c.count(t, "args ->> 'tenant' = 'other' AND state = 'running'") == 1 })
	if time.Since(full) < time.Second && n.claimed() != 1 {
		t.Errorf("%d jobs are claimed", n.claimed())
	}
	c.waitFor(t, "the job whose rate was full", func() bool { return n.claimed() == 2 })
	if passed := time.Since(full); passed < 1500*time.Millisecond {
		t.Errorf("a job was offered %s after the last start of its rate", passed)
	}
}

// A job of several units gets them before the jobs behind it, even if it is deep in a backlog, most
// pages do not contain it, and the limits and nodes are read often.
func TestHeavyJobIsNotOvertaken(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 20, Key: "args.tenant", Per: 2 * time.Second})
	c.exec(t, `INSERT INTO forge_rate_windows VALUES ('queue_rate', 'default', 'acme', ARRAY[clock_timestamp() + interval '2 seconds'], '{1}', '{}', '{}', now() + interval '1 hour')`)
	c.insert(t, 2500, "unworked", "default", "")
	c.exec(t, `INSERT INTO river_job (kind, args, metadata) VALUES ('k', '{"tenant": "acme"}', '{"forge:weight": 20}')`)
	c.insertTenant(t, 2500, "k", "acme")
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
	heavyRuns := func() bool { return c.count(t, "state = 'running' AND metadata ? 'forge:weight'") == 1 }
	c.waitFor(t, "the job of several units", func() bool {
		c.exec(t, `SELECT pg_notify('public.forge_cron', '')`)
		return n.claimed() > 0
	})
	if !heavyRuns() {
		t.Error("a job behind it was offered first")
	}
	c.waitFor(t, "the jobs behind it", func() bool { return n.claimed() > 1 })
}

// A job of several units that is cancelled holds back no others for long.
func TestCancelledHeavyJobHoldsBackNone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.limit(t, jobstore.Limit{Scope: "queue", Name: "default", Most: 20, Key: "args.tenant", Per: time.Hour})
	c.exec(t, `INSERT INTO forge_rate_windows VALUES ('queue_rate', 'default', 'acme', ARRAY[clock_timestamp() - interval '59 minutes 57 seconds'], '{15}', '{}', '{}', now() + interval '1 hour')`)
	c.exec(t, `INSERT INTO river_job (kind, args, metadata) VALUES ('k', '{"tenant": "acme"}', '{"forge:weight": 20}')`)
	c.insertTenant(t, 5, "k", "acme")
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 50})
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
	c.insertTenant(t, 1, "k", "other")
	c.waitFor(t, "the job of another tenant", func() bool { return n.claimed() == 1 })
	c.exec(t, `UPDATE river_job SET state = 'cancelled', finalized_at = now() WHERE metadata ? 'forge:weight'`)
	c.waitFor(t, "the jobs behind it", func() bool { return n.claimed() == 6 })
}
