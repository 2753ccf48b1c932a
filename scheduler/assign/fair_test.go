package assign_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// applyQueues applies a configuration with these queues.
func (c *cluster) applyQueues(t *testing.T, queues string) {
	t.Helper()
	outcome, err := cronstore.New(c.pool).Apply(t.Context(), cronstore.Applied{
		Hash: queues, NodeID: "a", Body: []byte(`{"queues": {` + queues + `}}`),
	}, true)
	if err != nil || outcome.State != cronstore.StateApplied {
		t.Fatalf("apply: %+v, %v", outcome, err)
	}
	c.exec(t, `SELECT pg_notify('public.forge_cron', '')`)
}

// awaitFairIndex waits until the index by a key is ready, and no other exists. Without a key, it
// waits until none exists.
func (c *cluster) awaitFairIndex(t *testing.T, key ...string) {
	t.Helper()
	want := []jobstore.FairIndex{}
	if len(key) > 0 {
		mail := jobstore.FairQueue{Queue: "mail", Key: limitkey.Key{Source: limitkey.Args, Path: key}}
		want = append(want, jobstore.FairIndex{Name: mail.IndexName(), Ready: true})
	}
	c.waitFor(t, fmt.Sprintf("the index by %v", key), func() bool {
		indexes, err := jobstore.New(c.pool).FairIndexes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return cmp.Equal(want, indexes, cmpopts.EquateEmpty())
	})
}

// insertMail adds jobs of a tenant without a notification.
func (c *cluster) insertMail(t *testing.T, n int, tenant, metadata string) {
	t.Helper()
	c.exec(t, `INSERT INTO river_job (kind, queue, args, metadata)
		SELECT 'k', 'mail', jsonb_build_object('tenant', $1::text), $2::jsonb FROM generate_series(1, $3)`, tenant, metadata, n)
}

// endOne waits for the running job of the node's only slot, ends it and returns its tenant.
func (c *cluster) endOne(t *testing.T, f *fakeNode) (tenant string) {
	t.Helper()
	c.waitFor(t, "a running job", func() bool { return c.count(t, "state = 'running'") > 0 })
	f.mu.Lock()
	defer f.mu.Unlock()
	err := c.pool.QueryRow(t.Context(), `UPDATE river_job SET state = 'completed', finalized_at = now()
		WHERE state = 'running' RETURNING args ->> 'tenant'`).Scan(&tenant)
	if err != nil {
		t.Fatal(err)
	}
	f.free++
	last := f.offers[len(f.offers)-1]
	c.exec(t, "SELECT pg_notify($1, $2)", wire.Channel(schema, wire.CreditChannel), wire.Marshal(f.credit(last)))
	return tenant
}

// The backlog of one tenant delays the jobs of others by its turns only, a tenant with a weight
// has as many jobs in each turn, and a job that no node can take delays no others of its tenant.
func TestFairQueueServesKeysInTurns(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.applyQueues(t, `"mail": {"fair_by": "args.tenant", "fair_weights": {"c": 2}}`)
	node := c.join(t, nodestore.Node{NodeID: "a", Slots: 1, Queues: map[string]int{"mail": 1}}, func(f *fakeNode) { f.busy = true })
	c.leadUntilDone(t, c.makeLeader(t, 1), assign.LeastLoaded, func(a *assign.Assigner) {
		assign.SetOfferTimeout(a, time.Hour)
		assign.LogTo(a, slog.New(slog.NewTextHandler(t.Output(), nil)))
	})
	c.awaitFairIndex(t, "tenant")
	c.insertMail(t, 200, "a", "{}")
	c.insertMail(t, 1, "b", `{"forge:capability": "none"}`)
	c.insertMail(t, 3, "b", "{}")
	c.insertMail(t, 4, "c", "{}")
	c.exec(t, `SELECT pg_notify('public.river_insert', '{"queue": "mail"}')`)

	var served strings.Builder
	for range 20 {
		served.WriteString(c.endOne(t, node))
	}
	_, turns, _ := strings.Cut(served.String(), "bcc")
	if strings.Count(served.String(), "b") != 3 || strings.Count(served.String(), "c") != 4 || !strings.HasPrefix(turns, "abcca") {
		t.Errorf("served %s of 200 a, 3 b and 4 c; want turns of a, b and two c", &served)
	}

	c.applyQueues(t, `"mail": {"fair_by": "args.other"}`)
	c.awaitFairIndex(t, "other")
	c.applyQueues(t, `"mail": {"max_workers": 1}`)
	c.awaitFairIndex(t)
	c.endOne(t, node)
}

// Tenants whose limit is reached delay no others, and get the places that become free.
func TestFairQueueSkipsFullKeys(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.applyQueues(t, `"mail": {"fair_by": "args.tenant"}`)
	c.limit(t, jobstore.Limit{Scope: jobstore.ScopeQueue, Name: "mail", Most: 2, Key: "args.tenant"},
		jobstore.Limit{Scope: jobstore.ScopeJob, Name: "rare", Most: 1})
	c.join(t, nodestore.Node{NodeID: "a", Slots: 100, Queues: map[string]int{"mail": 100}, Kinds: []string{"k", "rare"}})
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
	c.awaitFairIndex(t, "tenant")
	for i := range 30 {
		c.insertMail(t, 20, fmt.Sprint("big-", i), "{}")
	}
	c.insertMail(t, 1, "small", "{}")
	c.exec(t, `UPDATE river_job SET kind = 'rare', priority = 1 + id % 2 WHERE args ->> 'tenant' IN ('big-1', 'big-2') AND id % 20 < 8`)
	c.exec(t, `SELECT pg_notify('public.river_insert', '{"queue": "mail"}')`)

	const full = `SELECT count(*) FROM (SELECT args FROM river_job WHERE state = 'running' GROUP BY args HAVING count(*) = 2) AS tenants`
	allFull := func() bool {
		var tenants int
		if err := c.pool.QueryRow(t.Context(), full).Scan(&tenants); err != nil {
			t.Fatal(err)
		}
		return tenants == 30
	}
	c.waitFor(t, "the small tenant's job", func() bool { return c.count(t, `state = 'running' AND args ->> 'tenant' = 'small'`) == 1 })
	for range 3 {
		c.waitFor(t, "two jobs of each other tenant", allFull)
		c.exec(t, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE state = 'running'`)
		c.exec(t, `SELECT pg_notify('public.river_insert', '{}')`)
	}
}

// Jobs and keys that limits hold back delay no others, however many they are and although nothing
// else can be offered meanwhile.
func TestFairQueueReachesPastHeldJobs(t *testing.T) {
	t.Parallel()
	const held = 400
	t.Run("jobs of a limited kind", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.applyQueues(t, `"mail": {"fair_by": "args.tenant"}`)
		c.limit(t, jobstore.Limit{Scope: jobstore.ScopeJob, Name: "rare", Most: 1})
		c.join(t, nodestore.Node{NodeID: "a", Slots: 10, Queues: map[string]int{"mail": 10}, Kinds: []string{"k", "rare"}})
		c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
		c.awaitFairIndex(t, "tenant")
		c.insertMail(t, held, "a", "{}")
		c.exec(t, `UPDATE river_job SET kind = 'rare'`)
		c.insertMail(t, 1, "a", "{}")
		c.exec(t, `SELECT pg_notify('public.river_insert', '{"queue": "mail"}')`)
		c.waitFor(t, "the job behind the held ones", func() bool { return c.count(t, `state = 'running' AND kind = 'k'`) == 1 })

		// A place that becomes free is used.
		c.exec(t, `UPDATE river_job SET state = 'completed', finalized_at = now() WHERE state = 'running'`)
		c.exec(t, `SELECT pg_notify('public.river_insert', '{}')`)
		c.waitFor(t, "the next held job", func() bool { return c.count(t, `state = 'running' AND kind = 'rare'`) == 1 })
	})
	t.Run("full keys", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		c.applyQueues(t, `"mail": {"fair_by": "args.tenant"}`)
		c.limit(t, jobstore.Limit{Scope: jobstore.ScopeQueue, Name: "mail", Most: 1, Key: "args.tenant"})
		c.join(t, nodestore.Node{NodeID: "a", Slots: 10, Queues: map[string]int{"mail": 10}})
		c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
		c.awaitFairIndex(t, "tenant")
		for i := range held {
			c.insertMail(t, 2, fmt.Sprintf("t%03d", i), "{}")
		}
		c.exec(t, `SELECT pg_notify('public.river_insert', '{"queue": "mail"}')`)
		c.waitFor(t, "a job of each tenant", func() bool { return c.count(t, `state = 'running'`) == held })
		// The turn of this tenant comes after those of all full ones.
		c.insertMail(t, 1, "t398x", "{}")
		c.exec(t, `SELECT pg_notify('public.river_insert', '{"queue": "mail"}')`)
		c.waitFor(t, "the job of the last tenant", func() bool { return c.count(t, `state = 'running'`) == held+1 })
	})
}

// A job of several units gets them before jobs of other tenants whose turns come later, and before
// those of its own behind it.
func TestHeavyJobOfFairQueueIsNotOvertaken(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.applyQueues(t, `"mail": {"fair_by": "args.tenant"}`)
	c.limit(t, jobstore.Limit{Scope: jobstore.ScopeJob, Name: "k", Most: 20, Per: 2 * time.Second})
	n := c.join(t, nodestore.Node{NodeID: "a", Slots: 100, Queues: map[string]int{"mail": 100}})
	c.lead(t, c.makeLeader(t, 1), assign.LeastLoaded)
	c.awaitFairIndex(t, "tenant")
	c.exec(t, `INSERT INTO forge_rate_windows VALUES ('job_rate', 'k', '', ARRAY[clock_timestamp() + interval '2 seconds'], '{1}', '{}', '{}', now() + interval '1 hour')`)
	c.insertMail(t, 1, "a", `{"forge:weight": 20}`)
	c.insertMail(t, 300, "a", "{}")
	c.insertMail(t, 300, "b", "{}")
	c.waitFor(t, "the job of several units", func() bool {
		c.exec(t, `SELECT pg_notify('public.forge_cron', '')`)
		return n.claimed() > 0
	})
	if c.count(t, "state = 'running' AND metadata ? 'forge:weight'") != 1 {
		t.Error("another job was offered first")
	}
	c.waitFor(t, "the other jobs", func() bool { return n.claimed() > 1 })
}
