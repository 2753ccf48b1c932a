package leaderstore_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

// delay is longer than any test.
const delay = time.Hour

// winSoon wins a lock that an ended session may still hold for a moment.
func (c *cluster) winSoon(s *leaderstore.Session) leaderstore.AcquiredTerm {
	c.t.Helper()
	for deadline := time.Now().Add(nodes.WaitTimeout); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		won, err := s.TryLocks(c.t.Context(), []leaderstore.Lock{lock})
		if err != nil {
			c.t.Fatal(err)
		}
		if len(won) == 0 {
			continue
		}
		acquired, err := s.AcquireTerm(c.t.Context(), role, leaderstore.SessionEnd{})
		if err != nil {
			c.t.Fatal(err)
		}
		return acquired
	}
	c.t.Fatal("the lock does not become free")
	return leaderstore.AcquiredTerm{}
}

func (c *cluster) requireTakeoverWait(fence leaderstore.Fence, want bool) {
	c.t.Helper()
	wait, err := leaderstore.New(c.pool).TakeoverWait(c.t.Context(), fence, delay)
	if err != nil {
		c.t.Fatal(err)
	}
	if want && (wait <= delay/2 || wait > delay) || !want && wait != 0 {
		c.t.Fatalf("term %d waits %v; want any: %v", fence.Term, wait, want)
	}
}

func TestTakeoverWaitsUnlessPredecessorsResigned(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	first := c.win(a)
	c.requireTakeoverWait(first.Fence, false)
	if err := a.Resign(t.Context(), lock, first.Fence.Term, "resigned"); err != nil {
		t.Fatal(err)
	}
	second := c.win(b)
	c.requireTakeoverWait(second.Fence, false)
	b.Close() // a crash
	third := c.winSoon(a)
	c.requireTakeoverWait(third.Fence, true)
	// It resigns in order before its work begins: the crashed process may still be working.
	if err := a.Resign(t.Context(), lock, third.Fence.Term, "stepped_down"); err != nil {
		t.Fatal(err)
	}
	fourth := c.win(c.open("c"))
	c.requireTakeoverWait(fourth.Fence, true)
	if wait, err := leaderstore.New(c.pool).TakeoverWait(t.Context(), fourth.Fence, time.Microsecond); err != nil || wait != 0 {
		t.Fatalf("a wait of %v, %v after the delay", wait, err)
	}
}

// A process that lost its session stops its own work before it becomes a candidate again.
func TestTakeoverOfOwnTermDoesNotWait(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	c.win(a)
	a.Close()
	again := c.winSoon(c.open("a"))
	if again.Fence.Term != 2 || again.Failover {
		t.Fatalf("won %+v", again)
	}
	c.requireTakeoverWait(again.Fence, false)
}

func TestMetadataIsClearedWithItsTerm(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a", func(cfg *leaderstore.SessionConfig) {
		cfg.Metadata = map[string]json.RawMessage{role: json.RawMessage(`{"shard": 7}`)}
	})
	b := c.open("b")
	first := c.win(a)
	c.wantMetadata(`{"shard": 7}`)
	drain(t, b)
	if err := leaderstore.New(c.pool).Publish(t.Context(), first.Fence, json.RawMessage(`{"shard": 8}`)); err != nil {
		t.Fatal(err)
	}
	c.wantMetadata(`{"shard": 8}`)
	if notified, err := b.Wait(t.Context()); err != nil || !notified {
		t.Fatalf("no notification: %v, %v", notified, err)
	}
	if err := a.Resign(t.Context(), lock, first.Fence.Term, "resigned"); err != nil {
		t.Fatal(err)
	}
	c.wantMetadata(`{}`)
	c.win(b)
	c.wantMetadata(`{}`)
	if err := leaderstore.New(c.pool).Publish(t.Context(), first.Fence, json.RawMessage(`{}`)); !errors.Is(err, leaderstore.ErrDeposed) {
		t.Fatalf("published after the end of the term: %v", err)
	}
}

func (c *cluster) wantMetadata(want string) {
	c.t.Helper()
	if got := string(c.leader().Metadata); got != want {
		c.t.Fatalf("metadata %s; want %s", got, want)
	}
}

func TestElectionEventsAreInOrder(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	c.win(a)
	a.Close()
	second := c.winSoon(b)
	if err := b.Resign(t.Context(), lock, second.Fence.Term, "resigned"); err != nil {
		t.Fatal(err)
	}
	rows, err := c.pool.Query(t.Context(), `
SELECT type || ' ' || node_id || ' ' || term || coalesce(' ' || (data ->> 'reason'), '') FROM forge_events ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	events, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"election_started a 1", "leader_elected a 1",
		"leader_lost a 1 crashed", "election_started b 2", "leader_elected b 2",
		"leader_lost b 2 resigned",
	}
	if !slices.Equal(events, want) {
		t.Errorf("events %q; want %q", events, want)
	}
}

// The events have the times at which a deputy noticed the end, the election started and the
// term began, in this order.
func TestElectionEventsHaveTheirTimes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	first := c.win(a)
	ended := c.now()
	a.Close()
	var won []string
	for deadline := time.Now().Add(nodes.WaitTimeout); len(won) == 0 && time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		var err error
		if won, err = b.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil {
			t.Fatal(err)
		}
	}
	before := c.now()
	if _, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{Incarnation: first.Fence.Incarnation, At: ended}); err != nil {
		t.Fatal(err)
	}
	around, err := leaderstore.New(c.pool).Around(t.Context(), role, 2)
	if err != nil || len(around) != 2 || !around[0].EndedAt.Equal(ended) {
		t.Fatalf("tenures %+v, %v; the first ended at %v", around, err, ended)
	}
	at := func(kind string) (at time.Time) {
		t.Helper()
		if err := c.pool.QueryRow(t.Context(), `SELECT at FROM forge_events WHERE type = $1 ORDER BY id DESC LIMIT 1`, kind).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	if lost, started, elected := at("leader_lost"), at("election_started"), at("leader_elected"); !lost.Equal(ended) ||
		started.Before(before) || started.After(elected) || !elected.Equal(around[1].AcquiredAt) {
		t.Errorf("lost at %v, want %v; election at %v, from %v; elected at %v, want %v", lost, ended, started, before, elected, around[1].AcquiredAt)
	}
}

// now reads the database's clock.
func (c *cluster) now() (now time.Time) {
	c.t.Helper()
	if err := c.pool.QueryRow(c.t.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
		c.t.Fatal(err)
	}
	return now
}
