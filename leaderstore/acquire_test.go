package leaderstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/leaderstore"
)

// atCommit makes every transaction that changes the history run a statement at commit.
func (c *cluster) atCommit(statement string) {
	c.t.Helper()
	c.exec(`CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM ` + statement + `; RETURN NULL; END $$`)
	c.exec(`CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT OR UPDATE ON forge_leader_history
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()`)
}

// A standby can hold the lock before the leader's resignation is committed. It then waits
// for the row, and records the end that this transaction wrote.
func TestGapStartsAtUncommittedResignation(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	withLongLockTimeout := func(cfg *leaderstore.SessionConfig) { cfg.LockTimeout = time.Minute }
	a, b := c.open("a"), c.open("b", withLongLockTimeout)
	if err := a.Resign(t.Context(), lock, c.win(a).Fence.Term, "resigned"); err != nil {
		t.Fatal(err)
	}
	second := c.win(a)
	const termTime = 400 * time.Millisecond
	time.Sleep(termTime) // at least the gap that would be counted from the first term
	c.atCommit(`pg_sleep(0.1)`)
	resigned := make(chan error, 1)
	go func() { resigned <- a.Resign(t.Context(), lock, second.Fence.Term, "stepped_down") }()
	until(t, func() bool { // polls without a pause to win before the commit
		won, err := b.TryLocks(t.Context(), []leaderstore.Lock{lock})
		return err == nil && len(won) == 1
	})
	third, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{})
	if err := errors.Join(err, <-resigned); err != nil {
		t.Fatal(err)
	}
	history := c.history()
	truth := history[0].AcquiredAt.Sub(history[1].EndedAt)
	if third.Gap != truth || !history[0].HasGap || history[0].Gap != truth || history[1].EndReason != "stepped_down" {
		t.Errorf("gap %v in the term, %v in the history; the previous term ended %v before", third.Gap, history[0].Gap, truth)
	}
	if third.Gap >= termTime {
		t.Errorf("gap %v", third.Gap)
	}
}

// Commits with notifications wait for each other on the whole server. The lock timeout
// applies to the role's row only: a wait in the commit is not reported as a busy row.
func TestLockTimeoutDoesNotApplyToCommit(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	c.atCommit(`pg_advisory_xact_lock(42)`)
	holder, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), `SELECT pg_advisory_xact_lock(42)`); err != nil {
		t.Fatal(err)
	}
	if won, err := a.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil || len(won) != 1 {
		t.Fatalf("won %v, %v", won, err)
	}
	acquired := make(chan error, 1)
	go func() {
		_, err := a.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{})
		acquired <- err
	}()
	select {
	case err := <-acquired:
		_ = holder.Rollback(t.Context())
		t.Fatalf("AcquireTerm did not wait: %v", err)
	case <-time.After(4 * c.config("a").LockTimeout):
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-acquired; err != nil {
		t.Fatal(err)
	}
}

// AcquireTerm inserts a deleted row of a role again, and the terms continue from the
// history.
func TestAcquireTermRestoresMissingRow(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	byLock, byLease := c.open("a"), c.openLease("b")
	if err := byLock.Resign(t.Context(), lock, c.win(byLock).Fence.Term, "resigned"); err != nil {
		t.Fatal(err)
	}
	c.exec(`DELETE FROM forge_leaders`)
	second := c.win(byLock)
	if second.Fence.Term != 2 {
		t.Errorf("term %d by lock; want 2", second.Fence.Term)
	}
	if err := byLock.Resign(t.Context(), lock, 2, "resigned"); err != nil {
		t.Fatal(err)
	}
	c.exec(`DELETE FROM forge_leaders`)
	third, ok := c.take(byLease)
	if !ok || third.Fence.Term != 3 {
		t.Errorf("by lease: %+v, %v; want term 3", third, ok)
	}
	if leader := c.leader(); leader.NodeID != "b" || leader.Term != 3 || !leader.Leads() {
		t.Errorf("row: %+v", leader)
	}
}

// A term ends when its row is deleted: from then on the fence rejects its writes.
func TestDeletedRowEndsTerm(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"delete":   `DELETE FROM forge_leaders`,
		"truncate": `TRUNCATE forge_leaders`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			a := c.open("a")
			first := c.win(a)
			time.Sleep(200 * time.Millisecond)
			c.exec(statement)
			if _, err := first.Fence.Check(t.Context(), c.fencedTx()); !errors.Is(err, leaderstore.ErrDeposed) {
				t.Errorf("the fence: %v", err)
			}
			held := []leaderstore.Held{{Role: role, Term: 1}}
			if still, err := a.Renew(t.Context(), held); err != nil || len(still) != 0 {
				t.Errorf("renewed %v, %v", still, err)
			}
			a.Close()
			b := c.open("b")
			c.awaitLock(b)
			second, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{})
			if err != nil {
				t.Fatal(err)
			}
			before := c.history()[1]
			if before.EndReason != "unknown" || before.EndedAt.Sub(before.AcquiredAt) < 200*time.Millisecond {
				t.Errorf("the term whose row was deleted: %+v", before)
			}
			if want := c.history()[0].AcquiredAt.Sub(before.EndedAt); second.Gap != want {
				t.Errorf("gap %v; want %v", second.Gap, want)
			}
		})
	}
}

// fencedTx returns a transaction that is rolled back when the test ends.
func (c *cluster) fencedTx() pgx.Tx {
	c.t.Helper()
	tx, err := c.pool.Begin(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}
