package roles_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
	"github.com/forge-scheduler/forge/test/nodes"
)

const (
	evictedLock = 0x464F524745_0001
	// standbyLease is how long a standby waits before it evicts. It is long enough for a
	// slow test machine.
	standbyLease = 1500 * time.Millisecond
)

// holdLock holds the scheduler's lock on a session that the server does not end.
func holdLock(t *testing.T, url, name string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url+"&application_name="+name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, evictedLock); err != nil {
		t.Fatal(err)
	}
	return conn
}

// startElections runs elections for the scheduler on PostgreSQL until the test ends.
func startElections(t *testing.T, url string) (log *nodes.Output, led <-chan leaderstore.Fence) {
	t.Helper()
	log = &nodes.Output{}
	began := make(chan leaderstore.Fence, 8)
	cfg := leaderstore.SessionConfig{
		URL: url, Schema: "public", NodeID: "b", Incarnation: "00000000000000bb", Lease: standbyLease,
		CheckInterval: 100 * time.Millisecond, LockTimeout: 100 * time.Millisecond, NodeLockClass: 1, NodeLockObject: 2,
	}
	elections := roles.NewElections(roles.Options{
		NodeID: "b", CheckInterval: cfg.CheckInterval, LeaseDuration: cfg.Lease, RefreshInterval: 100 * time.Millisecond,
		OpenSession: func(ctx context.Context) (roles.Session, error) {
			return leaderstore.OpenSession(ctx, cfg, []string{string(roles.Scheduler)})
		},
		Roles: []roles.RoleConfig{{Role: roles.Scheduler, LockID: evictedLock, Lead: roles.Unwatched(
			func(ctx context.Context, fence leaderstore.Fence) error {
				began <- fence
				<-ctx.Done()
				return nil
			})}},
		Metrics: metrics.New("test"), Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- elections.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return log, began
}

func TestStandbyEvictsHolderWithExpiredLease(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	frozen := holdLock(t, url, "forge:00000000000000aa:a")
	_, err := pool.Exec(t.Context(), `
INSERT INTO forge_leaders (role, term, node_id, incarnation, backend_pid, acquired_at, renewed_at, lease_until)
VALUES ('scheduler', 4, 'a', '00000000000000aa', $1, now(), now(), now());`, frozen.PgConn().PID())
	if err == nil {
		_, err = pool.Exec(t.Context(), `INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at)
VALUES ('scheduler', 4, 'a', '00000000000000aa', now())`)
	}
	if err != nil {
		t.Fatal(err)
	}
	log, led := startElections(t, url)
	select {
	case fence := <-led:
		if fence.Term < 5 { // a slow node may have lost a term since
			t.Errorf("leads in term %d", fence.Term)
		}
	case <-time.After(nodes.WaitTimeout):
		t.Fatal("no node took over from a holder with an expired lease")
	}
	if err := frozen.Ping(t.Context()); err == nil {
		t.Error("the frozen leader's session is still alive")
	}
	if n := strings.Count(log.String(), "evicted a leader"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	var reason string
	err = pool.QueryRow(t.Context(), `SELECT end_reason FROM forge_leader_history WHERE role = 'scheduler' AND term = 4`).Scan(&reason)
	if err != nil || reason != "evicted" {
		t.Errorf("the term ended as %q, %v", reason, err)
	}
}

func TestLockOfAnotherApplicationIsLoggedOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	stranger := holdLock(t, url, "payroll")
	log, led := startElections(t, url)
	const warning = "another application holds this role's lock"
	nodes.Eventually(t, nodes.WaitTimeout, "the log names the other application", func() bool { return strings.Contains(log.String(), warning) })
	select {
	case <-led:
		t.Fatal("leads without the lock")
	case <-time.After(2*standbyLease + standbyLease/2): // two more evictions would have been due
	}
	if n := strings.Count(log.String(), warning); n != 1 || !strings.Contains(log.String(), "payroll") {
		t.Errorf("logged %d times", n)
	}
	if err := stranger.Ping(t.Context()); err != nil {
		t.Errorf("the other application's session: %v", err)
	}
}
