package leaderstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

const role = "scheduler"

// calm is a lease that no test outlasts: the server would end the session of one
// that is slow.
const calm = 5 * time.Minute

func TestMain(m *testing.M) {
	nodes.Parallel(6) // they wait for leases
	os.Exit(m.Run())
}

var lock = leaderstore.Lock{Role: role, ID: 0x464F524745_0001}

// cluster is a database and the nodes' sessions on it.
type cluster struct {
	t      *testing.T
	url    string
	schema string // empty: public
	pool   *pgxpool.Pool
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	url := pgtest.URL(t)
	return &cluster{t: t, url: url, pool: pgtest.Connect(t, url)}
}

func (c *cluster) open(node string, change ...func(*leaderstore.SessionConfig)) *leaderstore.Session {
	c.t.Helper()
	s, err := leaderstore.OpenSession(c.t.Context(), c.config(node, change...), []string{role, "log_compactor"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(s.Close)
	return s
}

func (c *cluster) config(node string, change ...func(*leaderstore.SessionConfig)) leaderstore.SessionConfig {
	cfg := leaderstore.SessionConfig{
		URL: c.url, Schema: cmp.Or(c.schema, "public"), NodeID: node, Incarnation: fmt.Sprintf("%016x", len(node)*7919+int(node[len(node)-1])),
		APIURL: "http://" + node, Lease: calm, CheckInterval: time.Second,
		LockTimeout: 100 * time.Millisecond, NodeLockClass: 1, NodeLockObject: int32(node[len(node)-1]),
	}
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

// awaitLock tries the lock until the session has it.
func (c *cluster) awaitLock(s *leaderstore.Session) {
	c.t.Helper()
	until(c.t, func() bool {
		won, err := s.TryLocks(c.t.Context(), []leaderstore.Lock{lock})
		return err == nil && len(won) == 1
	})
}

func (c *cluster) win(s *leaderstore.Session) leaderstore.Minted {
	c.t.Helper()
	won, err := s.TryLocks(c.t.Context(), []leaderstore.Lock{lock})
	if err != nil || len(won) != 1 {
		c.t.Fatalf("won %v, %v; want the lock", won, err)
	}
	minted, err := s.Mint(c.t.Context(), role, leaderstore.End{})
	if err != nil {
		c.t.Fatal(err)
	}
	return minted
}

func (c *cluster) leader() leaderstore.Leader {
	c.t.Helper()
	leaders, err := leaderstore.Leaders(c.t.Context(), c.pool)
	if err != nil || len(leaders) == 0 {
		c.t.Fatalf("leaders: %v, %v", leaders, err)
	}
	return leaders[0]
}

func (c *cluster) history() []leaderstore.Tenure {
	c.t.Helper()
	tenures, err := leaderstore.History(c.t.Context(), c.pool, role, 100)
	if err != nil {
		c.t.Fatal(err)
	}
	var apart []int64 // one by one it is the same
	for after := (leaderstore.Place{}); ; {
		one, err := leaderstore.HistoryAfter(c.t.Context(), c.pool, role, after, 1)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(one) == 0 || len(apart) > len(tenures) {
			break
		}
		apart, after = append(apart, one[0].Term), leaderstore.Place{AcquiredAt: one[0].AcquiredAt, Role: one[0].Role}
	}
	whole := make([]int64, 0, len(tenures))
	for _, tenure := range tenures {
		whole = append(whole, tenure.Term)
	}
	if !slices.Equal(whole, apart) {
		c.t.Errorf("the terms are %v, and page by page %v", whole, apart)
	}
	return tenures
}

func TestMintWritesRowHistoryAndEvent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	minted := c.win(c.open("a"))
	if minted.Fence.Term != 1 || minted.Failover || minted.Gap >= 0 {
		t.Fatalf("first term: %+v", minted)
	}
	leader := c.leader()
	if leader.NodeID != "a" || leader.Term != 1 || !leader.Leads() || leader.APIURL != "http://a" || len(leader.Timeline) != 8 {
		t.Fatalf("row: %+v", leader)
	}
	history := c.history()
	if len(history) != 1 || history[0].NodeID != "a" || !history[0].EndedAt.IsZero() || history[0].HasGap {
		t.Fatalf("history: %+v", history)
	}
	var events int
	err := c.pool.QueryRow(t.Context(),
		`SELECT count(*) FROM forge_events WHERE type = 'leader_elected' AND node_id = 'a' AND term = 1`).Scan(&events)
	if err != nil || events != 1 {
		t.Fatalf("events: %d, %v", events, err)
	}
}

func TestOnlyOneSessionWinsALock(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	c.win(a)
	if won, err := b.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil || len(won) != 0 {
		t.Fatalf("b won %v, %v while a leads", won, err)
	}
}

func TestResignHandsOverAndNotifies(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	first := c.win(a)
	drain(t, b)
	if err := a.Resign(t.Context(), lock, first.Fence.Term, "resigned"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), nodes.Patience)
	defer cancel()
	if notified, err := b.Wait(ctx); err != nil || !notified {
		t.Fatalf("b was not told: %v, %v", notified, err)
	}
	if vacant := c.leader(); vacant.Leads() || vacant.Term != 1 {
		t.Fatalf("row after resigning: %+v", vacant)
	}
	second := c.win(b)
	if second.Fence.Term != 2 || !second.Failover || second.Gap < 0 {
		t.Fatalf("second term: %+v", second)
	}
	if ended := c.history()[1]; ended.EndReason != "resigned" || ended.EndedAt.IsZero() {
		t.Fatalf("ended tenure: %+v", ended)
	}
}

func TestClosedSessionIsSucceededAsCrashed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	c.win(a)
	a.Close()
	c.awaitLock(b)
	if _, err := b.Mint(t.Context(), role, leaderstore.End{}); err != nil {
		t.Fatal(err)
	}
	if ended := c.history()[1]; ended.EndReason != "crashed" || c.history()[0].Gap < 0 {
		t.Fatalf("ended tenure: %+v", ended)
	}
}

// A deputy saw when the predecessor's session ended: the gap is counted from
// there and not from the last renewal.
func TestMintTakesTheDeputysWordForTheEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	incarnation := c.win(a).Fence.Incarnation
	c.exec(`UPDATE forge_leaders SET renewed_at = renewed_at - interval '700 ms'`)
	a.Close()
	c.awaitLock(b)
	var now time.Time
	if err := c.pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mint(t.Context(), role, leaderstore.End{Incarnation: incarnation, At: now}); err != nil {
		t.Fatal(err)
	}
	if ended := c.history()[1].EndedAt; !ended.Equal(now) {
		t.Fatalf("ended at %v; want %v", ended, now)
	}
}

func TestServerEndsASilentLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a", patient), c.open("b")
	first := c.win(a)
	c.fallSilent(a)
	c.awaitLock(b)
	var now time.Time // at which a deputy saw the session end: the leader was silent long before
	if err := c.pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
		t.Fatal(err)
	}
	second, err := b.Mint(t.Context(), role, leaderstore.End{Incarnation: first.Fence.Incarnation, At: now})
	if err != nil {
		t.Fatal(err)
	}
	if second.Gap < lease {
		t.Errorf("a gap of %v after a silence of a lease", second.Gap)
	}
	if ended := c.history()[1]; ended.EndReason != "lease_expired" {
		t.Fatalf("ended tenure: %+v", ended)
	}
	if _, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err == nil {
		t.Fatal("the silent leader could still renew")
	}
}

// patient keeps a standby's session for longer than a leader's.
func patient(cfg *leaderstore.SessionConfig) { cfg.CheckInterval = calm }

// fallSilent lets a leader's lease be a short one, and nothing more come from it: a
// process that was stopped. Whoever wins gets the patience of its lease.
func (c *cluster) fallSilent(s *leaderstore.Session) {
	c.t.Helper()
	want := strconv.FormatInt(calm.Milliseconds(), 10)
	if got, err := s.Setting(c.t.Context(), "idle_session_timeout"); err != nil || got != want {
		c.t.Errorf("the server bears a silent leader for %s ms, %v; want the lease, %s", got, err, want)
	}
	c.shorten()
	if err := s.Exec(c.t.Context(), `SET idle_session_timeout = '500 ms'`); err != nil {
		c.t.Fatal(err)
	}
}

// A server whose TCP gives up soon would free the lock of a leader that is cut off
// while it still trusts.
func TestSessionOutlivesShortTCPTimeouts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, setting := range []string{"user_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count"} {
		if _, err := c.pool.Exec(t.Context(), fmt.Sprintf(
			`DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET tcp_%s = 1', current_database()); END $$`, setting)); err != nil {
			t.Fatal(err)
		}
	}
	s := c.open("a")
	for _, name := range []string{"tcp_user_timeout", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count"} {
		if value, err := s.Setting(t.Context(), name); err != nil || value == "1" {
			t.Errorf("%s is %s in the election's session (%v)", name, value, err)
		}
	}
}

func TestRenewOnlyConfirmsTheCurrentTerm(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	minted := c.win(a)
	before := c.leader().LeaseUntil
	held := []leaderstore.Held{{Role: role, Term: minted.Fence.Term}}
	if still, err := a.Renew(t.Context(), held); err != nil || len(still) != 1 {
		t.Fatalf("renewed %v, %v", still, err)
	}
	if !c.leader().LeaseUntil.After(before) {
		t.Fatal("the lease did not move")
	}
	c.exec(`UPDATE forge_leaders SET term = 9, incarnation = 'ffffffffffffffff'`)
	if still, err := a.Renew(t.Context(), held); err != nil || len(still) != 0 {
		t.Fatalf("a replaced term was renewed: %v, %v", still, err)
	}
}

func TestTermsSurviveALostRow(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	if err := a.Resign(t.Context(), lock, c.win(a).Fence.Term, "resigned"); err != nil {
		t.Fatal(err)
	}
	c.exec(`DELETE FROM forge_leaders`)
	if term := c.win(c.open("b")).Fence.Term; term != 2 {
		t.Fatalf("term %d after the row was deleted; want 2", term)
	}
}

func TestFenceRefusesADeposedTerm(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	fence := c.win(c.open("a")).Fence
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})
	fence.Refused = refused
	wrote := func(tx pgx.Tx, now time.Time) error {
		if now.IsZero() {
			t.Error("no clock from the fence")
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
		t.Errorf("%v refused writes are counted, want 1", got)
	}
}

// A fenced transaction is rolled back even if its work has written before the error.
func TestFencedWorkThatFailsLeavesNothing(t *testing.T) {
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

// fenced begins a transaction that has passed the fence.
func (c *cluster) fenced(minted leaderstore.Minted) pgx.Tx {
	c.t.Helper()
	tx, err := c.pool.Begin(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := minted.Fence.Check(c.t.Context(), tx); err != nil {
		c.t.Fatal(err)
	}
	return tx
}

// A transaction that passed the fence may yet commit: until it has ended the role is
// not resigned, unless it must be.
func TestFencedTransactionKeepsTheRole(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	for i, end := range []func(pgx.Tx, int64) error{
		func(tx pgx.Tx, term int64) error {
			return errors.Join(tx.Commit(t.Context()), a.Resign(t.Context(), lock, term, "resigned"))
		},
		func(tx pgx.Tx, term int64) error {
			return errors.Join(a.Vacate(t.Context(), lock, term, "resigned"), tx.Commit(t.Context()))
		},
	} {
		minted := c.win(a)
		tx := c.fenced(minted)
		if err := a.Resign(t.Context(), lock, minted.Fence.Term, "resigned"); !errors.Is(err, leaderstore.ErrBusy) {
			t.Errorf("resigned under a fenced transaction: %v", err)
		}
		if row := c.leader(); !row.Leads() {
			t.Errorf("the role is vacant: %+v", row)
		}
		if err := end(tx, minted.Fence.Term); err != nil {
			t.Error(err)
		}
		if row := c.leader(); row.Leads() {
			t.Errorf("%d: not vacated: %+v", i, row)
		}
	}
}

// A role that is somebody else's by now is resigned at once.
func TestResigningALostRoleIsNoError(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	minted := c.win(a)
	c.exec(`UPDATE forge_leaders SET incarnation = gen_random_uuid()::text`)
	if err := a.Resign(t.Context(), lock, minted.Fence.Term, "resigned"); err != nil {
		t.Error(err)
	}
	c.awaitLock(c.open("b"))
}

func TestFencedTransactionBlocksMintNotRenewal(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	minted := c.win(a)
	tx := c.fenced(minted)
	if still, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err != nil || len(still) != 1 {
		t.Fatalf("renewal under a fenced transaction: %v, %v", still, err)
	}
	a.Close()
	c.awaitLock(b)
	if _, err := b.Mint(t.Context(), role, leaderstore.End{}); !errors.Is(err, leaderstore.ErrBusy) {
		t.Fatalf("minted over a fenced transaction: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if second, err := b.Mint(t.Context(), role, leaderstore.End{}); err != nil || second.Fence.Term != 2 {
		t.Fatalf("mint after the commit: %+v, %v", second, err)
	}
}

func (c *cluster) count(sql string) (n int) {
	c.t.Helper()
	if err := c.pool.QueryRow(c.t.Context(), sql).Scan(&n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *cluster) exec(sql string) {
	c.t.Helper()
	if _, err := c.pool.Exec(c.t.Context(), sql); err != nil {
		c.t.Fatal(err)
	}
}

// drain takes the notifications that are already on their way.
func drain(t *testing.T, s *leaderstore.Session) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		notified, err := s.Wait(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if !notified {
			return
		}
	}
}

func until(t *testing.T, done func() bool) {
	t.Helper()
	nodes.Eventually(t, nodes.Patience, "what the test waits for", done)
}

func TestWatchSeesTheEndOfASession(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a") // holds the node lock (1, 'a')
	watch, err := leaderstore.OpenWatch(t.Context(), leaderstore.SessionConfig{
		URL: c.url, Schema: "public", NodeID: "b", Incarnation: "00000000000000bb", Lease: calm, CheckInterval: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Close)
	if ended, err := watch.AwaitEnd(t.Context(), 1, 'a'); err != nil || !ended.IsZero() {
		t.Fatalf("a lives: ended %v, %v", ended, err)
	}
	a.Close()
	until(t, func() bool {
		ended, err := watch.AwaitEnd(t.Context(), 1, 'a')
		if err != nil {
			t.Fatal(err)
		}
		return !ended.IsZero()
	})
	if won, err := c.open("c").TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil || len(won) != 1 {
		t.Fatalf("the watch holds something: %v, %v", won, err)
	}
}
