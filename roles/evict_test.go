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
	// standbyLease is what a standby waits for before it evicts; its own lead outlasts
	// a slow moment.
	standbyLease = 1500 * time.Millisecond
)

// holder keeps the scheduler's lock on a session that the server does not end.
func holder(t *testing.T, url, name string) *pgx.Conn {
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

// stand runs a real campaign for the scheduler until the test ends.
func stand(t *testing.T, url string) (log *nodes.Output, led <-chan leaderstore.Fence) {
	t.Helper()
	log = &nodes.Output{}
	began := make(chan leaderstore.Fence, 8)
	cfg := leaderstore.SessionConfig{
		URL: url, Schema: "public", NodeID: "b", Incarnation: "00000000000000bb", Lease: standbyLease,
		CheckInterval: 100 * time.Millisecond, LockTimeout: 100 * time.Millisecond, NodeLockClass: 1, NodeLockObject: 2,
	}
	campaign := roles.New(roles.Options{
		NodeID: "b", CheckInterval: cfg.CheckInterval, LeaseDuration: cfg.Lease, RefreshInterval: 100 * time.Millisecond,
		Open: func(ctx context.Context) (roles.Session, error) {
			return leaderstore.OpenSession(ctx, cfg, []string{string(roles.Scheduler)})
		},
		Contests: []roles.Contest{{Role: roles.Scheduler, LockID: evictedLock, Duty: roles.Unwatched(
			func(ctx context.Context, fence leaderstore.Fence) error {
				began <- fence
				<-ctx.Done()
				return nil
			})}},
		Metrics: metrics.New("test"), Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- campaign.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return log, began
}

func TestStandbyEvictsAHolderBeyondItsLease(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	frozen := holder(t, url, "forge:00000000000000aa:a")
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
	log, led := stand(t, url)
	select {
	case fence := <-led:
		if fence.Term < 5 { // a slow node may have lost one since
			t.Errorf("leads in term %d", fence.Term)
		}
	case <-time.After(nodes.Patience):
		t.Fatal("nobody took over from a holder beyond its lease")
	}
	if err := frozen.Ping(t.Context()); err == nil {
		t.Error("the frozen leader's session lives")
	}
	if n := strings.Count(log.String(), "evicted a leader"); n != 1 {
		t.Errorf("told %d times", n)
	}
	var reason string
	err = pool.QueryRow(t.Context(), `SELECT end_reason FROM forge_leader_history WHERE role = 'scheduler' AND term = 4`).Scan(&reason)
	if err != nil || reason != "evicted" {
		t.Errorf("the tenure ended as %q, %v", reason, err)
	}
}

func TestLockOfAnotherApplicationIsToldOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	stranger := holder(t, url, "payroll")
	log, led := stand(t, url)
	const told = "another application holds this role's lock"
	nodes.Eventually(t, nodes.Patience, "the log tells of the other application", func() bool { return strings.Contains(log.String(), told) })
	select {
	case <-led:
		t.Fatal("leads without the lock")
	case <-time.After(2*standbyLease + standbyLease/2): // two more evictions would have been due
	}
	if n := strings.Count(log.String(), told); n != 1 || !strings.Contains(log.String(), "payroll") {
		t.Errorf("told %d times", n)
	}
	if err := stranger.Ping(t.Context()); err != nil {
		t.Errorf("the other application's session: %v", err)
	}
}
