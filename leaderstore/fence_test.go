package leaderstore_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/leaderstore"
)

func TestFenceRejectsDeposedTerm(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.win(c.open("a")).Fence
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})
	fence.Refused = refused
	wrote := func(tx pgx.Tx, now time.Time) error {
		if now.IsZero() {
			t.Error("the fence returned no time")
		}
		_, err := tx.Exec(t.Context(), `INSERT INTO forge_events (type) VALUES ('probe')`)
		return err
	}
	if err := fence.Do(t.Context(), c.pool, wrote); err != nil {
		t.Fatal(err)
	}
	c.exec(`UPDATE forge_leaders SET term = term + 1`)
	if err := fence.Do(t.Context(), c.pool, wrote); !errors.Is(err, leaderstore.ErrDeposed) {
		t.Errorf("a deposed term: %v", err)
	}
	if n := c.count(`SELECT count(*) FROM forge_events WHERE type = 'probe'`); n != 1 {
		t.Errorf("%d rows after one write of the term and one after its end; want 1", n)
	}
	if got := testutil.ToFloat64(refused); got != 1 {
		t.Errorf("%v rejected writes were counted, want 1", got)
	}
}

// A primary that was replaced while it was frozen has not seen the newest term, and cannot end it.
func TestServerThatHasNotSeenTheTermDoesNotEndIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.win(c.open("a")).Fence
	fence.Term++
	for what, err := range map[string]error{
		"the fence": fence.Do(t.Context(), c.pool, func(pgx.Tx, time.Time) error { t.Error("the work began"); return nil }),
		"publish":   leaderstore.New(c.pool).Publish(t.Context(), fence, json.RawMessage(`{}`)),
	} {
		if err == nil || errors.Is(err, leaderstore.ErrDeposed) || !strings.Contains(err.Error(), "this server has seen only term 1") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A fenced transaction is rolled back even if its work has written before the error.
func TestFailedFencedWorkIsRolledBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.win(c.open("a")).Fence
	failure := errors.New("the work failed")
	err := fence.Do(t.Context(), c.pool, func(tx pgx.Tx, _ time.Time) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO forge_events (type) VALUES ('probe')`)
		return errors.Join(failure, err)
	})
	if !errors.Is(err, failure) {
		t.Errorf("Do returned %v", err)
	}
	if n := c.count(`SELECT count(*) FROM forge_events WHERE type = 'probe'`); n != 0 {
		t.Errorf("%d rows of a transaction that failed", n)
	}
}

// fenced begins a transaction and checks the fence in it.
func (c *cluster) fenced(acquired leaderstore.AcquiredTerm) pgx.Tx {
	c.t.Helper()
	tx, err := c.pool.Begin(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := acquired.Fence.Check(c.t.Context(), tx); err != nil {
		c.t.Fatal(err)
	}
	return tx
}

// A fenced transaction may still commit, so the role is not resigned before it ends, except
// by ForceResign.
func TestFencedTransactionDelaysResign(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	for i, end := range []func(pgx.Tx, int64) error{
		func(tx pgx.Tx, term int64) error {
			return errors.Join(tx.Commit(t.Context()), a.Resign(t.Context(), lock, term, "resigned"))
		},
		func(tx pgx.Tx, term int64) error {
			return errors.Join(a.ForceResign(t.Context(), lock, term, "resigned"), tx.Commit(t.Context()))
		},
	} {
		acquired := c.win(a)
		tx := c.fenced(acquired)
		if err := a.Resign(t.Context(), lock, acquired.Fence.Term, "resigned"); !errors.Is(err, leaderstore.ErrBusy) {
			t.Errorf("resigned during a fenced transaction: %v", err)
		}
		if row := c.leader(); !row.Leads() {
			t.Errorf("the role is vacant: %+v", row)
		}
		if err := end(tx, acquired.Fence.Term); err != nil {
			t.Error(err)
		}
		if row := c.leader(); row.Leads() {
			t.Errorf("%d: not vacated: %+v", i, row)
		}
	}
}

func TestFencedTransactionBlocksAcquireTermButNotRenewal(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	acquired := c.win(a)
	tx := c.fenced(acquired)
	if still, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err != nil || len(still) != 1 {
		t.Fatalf("renewal during a fenced transaction: %v, %v", still, err)
	}
	a.Close()
	c.awaitLock(b)
	if _, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{}); !errors.Is(err, leaderstore.ErrBusy) {
		t.Fatalf("acquired a term during a fenced transaction: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if second, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{}); err != nil || second.Fence.Term != 2 {
		t.Fatalf("term after the commit: %+v, %v", second, err)
	}
}
