package leaderstore_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

const role = "scheduler"

// longLease is longer than any test: the server would end the session of a slow test.
const longLease = 5 * time.Minute

func TestMain(m *testing.M) {
	nodes.Parallel(6) // most tests only wait for leases
	os.Exit(m.Run())
}

var lock = leaderstore.Lock{Role: role, ID: 0x464F524745_0001}

// cluster is a database with the sessions of its nodes.
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
		APIURL: "http://" + node, Lease: longLease, CheckInterval: time.Second,
		LockTimeout: 100 * time.Millisecond, NodeLockClass: 1, NodeLockObject: int32(node[len(node)-1]),
	}
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

// awaitLock tries the lock until the session holds it.
func (c *cluster) awaitLock(s *leaderstore.Session) {
	c.t.Helper()
	until(c.t, func() bool {
		won, err := s.TryLocks(c.t.Context(), []leaderstore.Lock{lock})
		return err == nil && len(won) == 1
	})
}

func (c *cluster) win(s *leaderstore.Session) leaderstore.AcquiredTerm {
	c.t.Helper()
	won, err := s.TryLocks(c.t.Context(), []leaderstore.Lock{lock})
	if err != nil || len(won) != 1 {
		c.t.Fatalf("won %v, %v; want the lock", won, err)
	}
	acquired, err := s.AcquireTerm(c.t.Context(), role, leaderstore.SessionEnd{})
	if err != nil {
		c.t.Fatal(err)
	}
	return acquired
}

func (c *cluster) leader() leaderstore.Leader {
	c.t.Helper()
	leaders, err := leaderstore.New(c.pool).Leaders(c.t.Context())
	if err != nil || len(leaders) == 0 {
		c.t.Fatalf("leaders: %v, %v", leaders, err)
	}
	return leaders[0]
}

func (c *cluster) history() []leaderstore.Tenure {
	c.t.Helper()
	tenures, err := leaderstore.New(c.pool).History(c.t.Context(), role, 100)
	if err != nil {
		c.t.Fatal(err)
	}
	var separate []int64 // the history read page by page
	for after := (leaderstore.Cursor{}); ; {
		one, err := leaderstore.New(c.pool).Tenures(c.t.Context(), leaderstore.TenureFilter{Role: role, After: after, Limit: 1})
		if err != nil {
			c.t.Fatal(err)
		}
		if len(one) == 0 || len(separate) > len(tenures) {
			break
		}
		separate, after = append(separate, one[0].Term), leaderstore.Cursor{AcquiredAt: one[0].AcquiredAt, Role: one[0].Role}
	}
	whole := make([]int64, 0, len(tenures))
	for _, tenure := range tenures {
		whole = append(whole, tenure.Term)
	}
	if !slices.Equal(whole, separate) {
		c.t.Errorf("the terms are %v, but page by page %v", whole, separate)
	}
	return tenures
}

func TestAcquireTermWritesRowHistoryAndEvent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	acquired := c.win(c.open("a"))
	if acquired.Fence.Term != 1 || acquired.Failover || acquired.Gap >= 0 {
		t.Fatalf("first term: %+v", acquired)
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

func TestOnlyOneSessionWinsLock(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	c.win(a)
	if won, err := b.TryLocks(t.Context(), []leaderstore.Lock{lock}); err != nil || len(won) != 0 {
		t.Fatalf("b won %v, %v while a leads", won, err)
	}
}

func TestResignFreesLockAndNotifies(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	first := c.win(a)
	drain(t, b)
	if err := a.Resign(t.Context(), lock, first.Fence.Term, "resigned"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), nodes.WaitTimeout)
	defer cancel()
	if notified, err := b.Wait(ctx); err != nil || !notified {
		t.Fatalf("b was not notified: %v, %v", notified, err)
	}
	if vacant := c.leader(); vacant.Leads() || vacant.Term != 1 {
		t.Fatalf("row after resigning: %+v", vacant)
	}
	second := c.win(b)
	if second.Fence.Term != 2 || !second.Failover || second.Gap < 0 {
		t.Fatalf("second term: %+v", second)
	}
	if ended := c.history()[1]; ended.EndReason != "resigned" || ended.EndedAt.IsZero() {
		t.Fatalf("ended term: %+v", ended)
	}
}

func TestClosedSessionIsRecordedAsCrashed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a"), c.open("b")
	c.win(a)
	a.Close()
	c.awaitLock(b)
	if _, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{}); err != nil {
		t.Fatal(err)
	}
	if ended := c.history()[1]; ended.EndReason != "crashed" || c.history()[0].Gap < 0 {
		t.Fatalf("ended term: %+v", ended)
	}
}

// If a deputy observed the end of the predecessor's session, the gap begins there and not
// at the last renewal.
func TestGapStartsWhenDeputySawSessionEnd(t *testing.T) {
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
	if _, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{Incarnation: incarnation, At: now}); err != nil {
		t.Fatal(err)
	}
	if ended := c.history()[1].EndedAt; !ended.Equal(now) {
		t.Fatalf("ended at %v; want %v", ended, now)
	}
}

func TestServerEndsSilentLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a", withLongStandbyTimeout), c.open("b")
	first := c.win(a)
	c.silenceLeader(a)
	c.awaitLock(b)
	var now time.Time // when a deputy noticed the end of the session; the leader was silent long before
	if err := c.pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
		t.Fatal(err)
	}
	second, err := b.AcquireTerm(t.Context(), role, leaderstore.SessionEnd{Incarnation: first.Fence.Incarnation, At: now})
	if err != nil {
		t.Fatal(err)
	}
	if second.Gap < lease {
		t.Errorf("a gap of %v after a silence of a lease", second.Gap)
	}
	if ended := c.history()[1]; ended.EndReason != "lease_expired" {
		t.Fatalf("ended term: %+v", ended)
	}
	if _, err := a.Renew(t.Context(), []leaderstore.Held{{Role: role, Term: 1}}); err == nil {
		t.Fatal("the silent leader could still renew")
	}
}

// withLongStandbyTimeout makes a standby's idle timeout longer than a leader's.
func withLongStandbyTimeout(cfg *leaderstore.SessionConfig) { cfg.CheckInterval = longLease }

// silenceLeader shortens a leader's lease and idle timeout and sends nothing more, like a
// paused process. It checks that the winner of a lock has its lease as the idle timeout.
func (c *cluster) silenceLeader(s *leaderstore.Session) {
	c.t.Helper()
	want := strconv.FormatInt(longLease.Milliseconds(), 10)
	if got, err := s.Setting(c.t.Context(), "idle_session_timeout"); err != nil || got != want {
		c.t.Errorf("the server keeps a silent leader for %s ms, %v; want the lease, %s", got, err, want)
	}
	c.shortenLease()
	if err := s.Exec(c.t.Context(), `SET idle_session_timeout = '500 ms'`); err != nil {
		c.t.Fatal(err)
	}
}

// A server with short TCP timeouts must not free the lock of a disconnected leader that
// still trusts its lease.
func TestSessionSurvivesShortTCPTimeouts(t *testing.T) {
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
			t.Errorf("%s is %s in the election session (%v)", name, value, err)
		}
	}
}

func TestRenewConfirmsOnlyCurrentTerm(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	acquired := c.win(a)
	before := c.leader().LeaseUntil
	held := []leaderstore.Held{{Role: role, Term: acquired.Fence.Term}}
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

func TestTermsContinueAfterLostRow(t *testing.T) {
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

// Resigning a role that another node has acquired returns at once, without an error.
func TestResigningLostRoleIsNoError(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a")
	acquired := c.win(a)
	c.exec(`UPDATE forge_leaders SET incarnation = gen_random_uuid()::text`)
	if err := a.Resign(t.Context(), lock, acquired.Fence.Term, "resigned"); err != nil {
		t.Error(err)
	}
	c.awaitLock(c.open("b"))
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

// drain reads the pending notifications.
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
	nodes.Eventually(t, nodes.WaitTimeout, "the condition of the test", done)
}

// A session whose predecessor still held the node's lock acquires the lock with a later
// renewal. Until then no deputy can watch the leader.
func TestRenewalAcquiresNodeLock(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	before := pgtest.Connect(t, c.url) // the lock (1, 'a') of an earlier session
	if _, err := before.Exec(t.Context(), `SELECT pg_advisory_lock(1, $1::int)`, int32('a')); err != nil {
		t.Fatal(err)
	}
	a := c.open("a")
	held := []leaderstore.Held{{Role: role, Term: c.win(a).Fence.Term}}
	before.Close()
	const locksSQL = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1 AND objid = $1::int::oid
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	holders := func() (n int) {
		if err := c.pool.QueryRow(t.Context(), locksSQL, int32('a')).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	until(t, func() bool { return holders() == 0 })
	if still, err := a.Renew(t.Context(), held); err != nil || len(still) != 1 {
		t.Fatalf("renewed %v, %v", still, err)
	}
	if holders() != 1 {
		t.Error("the renewal did not acquire the node's lock")
	}
}

func TestWatchReportsSessionEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a := c.open("a") // holds the node lock (1, 'a')
	watch, err := leaderstore.OpenWatch(t.Context(), leaderstore.SessionConfig{
		URL: c.url, Schema: "public", NodeID: "b", Incarnation: "00000000000000bb", Lease: longLease, CheckInterval: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Close)
	if ended, err := watch.AwaitEnd(t.Context(), 1, 'a'); err != nil || !ended.IsZero() {
		t.Fatalf("a is alive: ended %v, %v", ended, err)
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
		t.Fatalf("the watch holds a lock: %v, %v", won, err)
	}
}

// A process that is too slow to send a statement within a lease opens its session anyway.
func TestStarvedProcessOpensSession(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	link := pgtest.Proxy(t, c.url)
	link.Delay(150 * time.Millisecond)
	c.open("a", func(cfg *leaderstore.SessionConfig) {
		cfg.URL, cfg.Lease, cfg.CheckInterval = link.URL(), 250*time.Millisecond, 50*time.Millisecond
	})
}

func TestOpenSessionHasStandbyTimeout(t *testing.T) {
	t.Parallel()
	s := newCluster(t).open("a")
	want := strconv.FormatInt(longLease.Milliseconds(), 10)
	if got, err := s.Setting(t.Context(), "idle_session_timeout"); err != nil || got != want {
		t.Errorf("idle_session_timeout is %q (%v); want the lease, %s ms", got, err, want)
	}
}
