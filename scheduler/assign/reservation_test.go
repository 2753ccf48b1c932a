package assign_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/scheduler/assign"
)

// leadAssigner runs an assigner until the test ends, and waits until it knows the nodes' credit.
func (c *cluster) leadAssigner(t *testing.T, nodes ...*fakeNode) *assign.Assigner {
	t.Helper()
	var assigner *assign.Assigner
	c.leadUntilDone(t, c.makeLeader(t, 1), assign.LeastLoaded, func(a *assign.Assigner) {
		assign.SetOfferTimeout(a, time.Hour)
		assigner = a
	})
	c.awaitCreditKnown(t, nodes...)
	return assigner
}

// reserve inserts n jobs in a transaction and reserves places for them. It retries while the
// assigner is busy.
func (c *cluster) reserve(t *testing.T, tx pgx.Tx, a *assign.Assigner, n int, like jobstore.NewJob) *assign.Reservation {
	t.Helper()
	jobs := make([]jobstore.NewJob, n)
	for i := range jobs {
		jobs[i] = like
		err := tx.QueryRow(t.Context(), `INSERT INTO river_job (kind, queue, args) VALUES ($1, $2, '{}') RETURNING id`, like.Kind, like.Queue).Scan(&jobs[i].ID)
		if err != nil {
			t.Fatal(err)
		}
	}
	var conditions jobstore.OfferConditions
	var batch pgx.Batch
	jobstore.BatchOfferConditions(&batch, jobs, &conditions)
	if err := tx.SendBatch(t.Context(), &batch).Close(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if r := a.Reserve(t.Context(), 1, jobs, conditions); r != nil {
			return r
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// reserveUncommitted returns an open transaction with n jobs that have places.
func (c *cluster) reserveUncommitted(t *testing.T, a *assign.Assigner, n int) (pgx.Tx, *assign.Reservation) {
	t.Helper()
	tx, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reserved := c.reserve(t, tx, a, n, jobstore.NewJob{Kind: "k", Queue: "default"})
	if reserved == nil {
		t.Fatal("no job was placed")
	}
	return tx, reserved
}

// The nodes get the offers with the commit: the assigner itself stands still until Release.
func TestReservedJobsAreOfferedByTheCommit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.join(t, nodestore.Node{NodeID: "a", Slots: 50, Kinds: []string{"k", "a"}}), c.join(t, nodestore.Node{NodeID: "b", Slots: 50, Kinds: []string{"k", "b"}})
	assigner := c.leadAssigner(t, a, b)
	err := pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error {
		reserved := c.reserve(t, tx, assigner, 20, jobstore.NewJob{Kind: "k", Queue: "default"})
		if reserved == nil {
			t.Fatal("no job was placed")
		}
		t.Cleanup(func() { reserved.Release(true) })
		var batch pgx.Batch
		reserved.Queue(&batch)
		if err := tx.SendBatch(t.Context(), &batch).Close(); err != nil {
			return err
		}
		if len(a.jobsOffered())+len(b.jobsOffered()) != 2 { // their own jobs
			t.Error("jobs were offered before the commit")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.waitFor(t, "the jobs to be claimed", func() bool { return a.claimed() == 11 && b.claimed() == 11 })
}

// Jobs of a transaction that was rolled back take no places for longer than lost offers do.
func TestReservationOfARollback(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.join(t, nodestore.Node{NodeID: "a", Slots: 5, Kinds: []string{"k", "a"}})
	var assigner *assign.Assigner
	c.leadUntilDone(t, c.makeLeader(t, 1), assign.LeastLoaded, func(a *assign.Assigner) { assigner = a })
	c.awaitCreditKnown(t, node)
	tx, reserved := c.reserveUncommitted(t, assigner, 5)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	reserved.Release(false)
	c.insert(t, 5, "k", "default", "")
	c.waitFor(t, "the other jobs to be claimed", func() bool { return node.claimed() == 6 })
}

// A commit that hangs holds up the offers of other jobs for a limited time.
func TestReservationExpires(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.join(t, nodestore.Node{NodeID: "a", Slots: 5, Kinds: []string{"k", "a"}})
	var assigner *assign.Assigner
	c.leadUntilDone(t, c.makeLeader(t, 1), assign.LeastLoaded, func(a *assign.Assigner) { assigner = a })
	c.awaitCreditKnown(t, node)
	tx, reserved := c.reserveUncommitted(t, assigner, 1)
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to keep
	defer reserved.Release(false)
	c.insert(t, 2, "k", "default", "")
	c.waitFor(t, "the other jobs to be claimed", func() bool { return node.claimed() == 3 })
}

// Jobs are not placed out of turn, or where a sweep would not place them.
func TestReservePlacesOnlyWhatAStepWould(t *testing.T) {
	t.Parallel()
	plain := jobstore.NewJob{Kind: "k", Queue: "default"}
	for name, test := range map[string]struct {
		limit   []jobstore.Limit
		prepare func(t *testing.T, c *cluster)
		job     jobstore.NewJob
		jobs    int
	}{
		"paused queue": {prepare: func(t *testing.T, c *cluster) {
			t.Helper()
			c.exec(t, `INSERT INTO river_queue (name, created_at, updated_at, paused_at) VALUES ('default', now(), now(), now())`)
		}, job: plain, jobs: 1},
		"new configuration": {prepare: func(t *testing.T, c *cluster) {
			t.Helper()
			c.apply(t, "true")
			c.exec(t, `UPDATE forge_config SET applied_at = applied_at + interval '1 hour'`) // without a notification
		}, job: plain, jobs: 1},
		"older jobs wait": {prepare: func(t *testing.T, c *cluster) {
			t.Helper()
			c.insert(t, 3, "nobody works this", "default", "")
			time.Sleep(200 * time.Millisecond)
		}, job: plain, jobs: 1},
		"limited kind":       {limit: []jobstore.Limit{{Scope: jobstore.ScopeJob, Name: "k", Most: 5}}, job: plain, jobs: 1},
		"too many jobs":      {job: plain, jobs: 11},
		"unknown kind":       {job: jobstore.NewJob{Kind: "other", Queue: "default"}, jobs: 1},
		"unknown queue":      {job: jobstore.NewJob{Kind: "k", Queue: "other"}, jobs: 1},
		"missing capability": {job: jobstore.NewJob{Kind: "k", Queue: "default", Metadata: map[string]any{jobstore.KeyCapability: "gpu"}}, jobs: 1},
		"missing tag": {job: jobstore.NewJob{
			Kind: "k", Queue: "default", Metadata: map[string]any{jobstore.KeyTags: map[string]string{"zone": "eu"}},
		}, jobs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.limit(t, test.limit...)
			node := c.join(t, nodestore.Node{NodeID: "a", Slots: 10, Kinds: []string{"k", "a"}})
			assigner := c.leadAssigner(t, node)
			if test.prepare != nil {
				test.prepare(t, c)
			}
			tx, err := c.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing to keep
			if reserved := c.reserve(t, tx, assigner, test.jobs, test.job); reserved != nil {
				reserved.Release(false)
				t.Error("jobs were placed")
			}
		})
	}
}

// Another term places nothing, and neither does an assigner that does not lead.
func TestReserveNeedsItsTerm(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.join(t, nodestore.Node{NodeID: "a", Slots: 10, Kinds: []string{"k", "a"}})
	assigner := c.leadAssigner(t, node)
	idle, err := assign.New(assign.Options{Pool: c.pool, Metrics: c.metrics, Logger: slog.New(slog.DiscardHandler), Schema: schema, Notifier: postgres.NewNotifier(c.pool, slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	jobs := []jobstore.NewJob{{ID: 1, Kind: "k", Queue: "default"}}
	if assigner.Reserve(t.Context(), 2, jobs, jobstore.OfferConditions{}) != nil {
		t.Error("another term placed a job")
	}
	if idle.Reserve(t.Context(), 1, jobs, jobstore.OfferConditions{}) != nil {
		t.Error("an assigner without a term placed a job")
	}
}
