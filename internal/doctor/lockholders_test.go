package doctor_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// connect opens a session with its own application_name.
func connect(t *testing.T, url, application string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url+"&application_name="+application)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func take(t *testing.T, conn *pgx.Conn, role roles.Role) {
	t.Helper()
	id, err := role.LockID(roles.AutoNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_lock($1)`, id); err != nil {
		t.Fatal(err)
	}
}

func TestVacantRoleIncludesLockHolder(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	stranger, leader := connect(t, url, "payroll"), connect(t, url, "forge:00000000000000aa:a")
	take(t, stranger, roles.Scheduler)
	take(t, leader, roles.LogCompactor)
	take(t, stranger, roles.MetricsAggregator) // which has a leader, by its lease
	if _, err := pool.Exec(t.Context(), `
INSERT INTO forge_leaders (role, node_id, incarnation, term, acquired_at, renewed_at, lease_until)
SELECT role, 'a', '00000000000000aa', 4, now(), now(), now() + interval '1 hour'
FROM unnest(ARRAY['log_compactor', 'metrics_aggregator']) AS role`); err != nil {
		t.Fatal(err)
	}
	leaders, err := doctor.LeadersWithHolders(t.Context(), pool, config.Default())
	if err != nil || len(leaders) != len(roles.All()) {
		t.Fatalf("leaders: %+v, %v", leaders, err)
	}
	for _, l := range leaders {
		if l.Role != string(roles.Scheduler) {
			if l.LockHolder != nil {
				t.Errorf("%s: held by %+v", l.Role, l.LockHolder)
			}
			continue
		}
		h := l.LockHolder
		if h == nil || h.PID != int(stranger.PgConn().PID()) || h.Application != "payroll" || h.User == "" || h.Since.IsZero() {
			t.Fatalf("the scheduler's lock: %+v", h)
		}
		if shown := h.String(); !strings.Contains(shown, `"payroll"`) || !strings.Contains(shown, h.User) {
			t.Errorf("told as %s", shown)
		}
	}
}

// A leader whose lease has just expired still holds its lock, and is not foreign.
func TestLeaderWithExpiredLeaseIsNotForeign(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	take(t, connect(t, url, "forge:00000000000000aa:a"), roles.Scheduler)
	if _, err := pool.Exec(t.Context(), `
INSERT INTO forge_leaders (role, node_id, incarnation, term, acquired_at, renewed_at, lease_until)
VALUES ('scheduler', 'a', '00000000000000aa', 4, now(), now(), now())`); err != nil {
		t.Fatal(err)
	}
	leaders, err := doctor.LeadersWithHolders(t.Context(), pool, config.Default())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leaders {
		if l.LockHolder != nil {
			t.Errorf("%s: held by %+v", l.Role, l.LockHolder)
		}
	}
	if _, err := leaderstore.New(pool).LockHolders(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
