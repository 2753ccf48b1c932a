package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const searchPathSQL = `SELECT current_setting('search_path') = 'forge' AND current_setting('idle_in_transaction_session_timeout') = '3s'`

func TestSessionPoolerKeepsSettings(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"direct":  pgtest.URL(t),
		"session": pgtest.StartBouncer(t, pgtest.URL(t), "session").URL(),
	} {
		pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: url, Schema: "forge"})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		var together sync.WaitGroup
		for range 4 { // on as many connections
			together.Go(func() {
				var kept bool
				if err := pool.QueryRow(t.Context(), searchPathSQL+` FROM pg_sleep(0.05)`).Scan(&kept); err != nil || !kept {
					t.Errorf("%s: settings kept: %v, %v", name, kept, err)
				}
			})
		}
		together.Wait()
	}
}

func TestTransactionPoolerIsRejected(t *testing.T) {
	t.Parallel()
	target := pgtest.URL(t)
	for _, mode := range []string{"transaction", "statement"} {
		url := pgtest.StartBouncer(t, target, mode).URL()
		pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: url, Schema: "forge"})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		err = postgres.Ping(t.Context(), pool)
		if !errors.Is(err, postgres.ErrUnreachable) || !strings.Contains(err.Error(), `strategy = "lease"`) {
			t.Errorf("%s mode: Ping = %v", mode, err)
		}
	}
}

// A pool that is configured for a pooler uses no session features and does not
// change shared sessions.
func TestPooledLeavesSessionsAlone(t *testing.T) {
	t.Parallel()
	target := pgtest.URL(t)
	pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{
		URL: pgtest.StartBouncer(t, target, "transaction", "default_pool_size = 2").URL(), Schema: "public", Pooled: true, MaxConns: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := postgres.Ping(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	var together sync.WaitGroup
	for range 8 {
		together.Go(func() { queryOften(t.Context(), t, pool.QueryRow) })
	}
	together.Wait()
}

func queryOften[R interface{ Scan(...any) error }](ctx context.Context, t *testing.T, query func(context.Context, string, ...any) R) {
	t.Helper()
	for range 20 {
		var untouched bool
		err := query(ctx, `SELECT current_setting('search_path') LIKE '"$user"%' AND $1::text = ANY ($2::text[])`, "a", []string{"a", "b"}).Scan(&untouched)
		if err != nil || !untouched {
			t.Errorf("untouched: %v, %v", untouched, err)
		}
	}
}

// The schema has to be the role's own search_path; otherwise the error says how to
// set it.
func TestPooledRequiresSchemaInSearchPath(t *testing.T) {
	t.Parallel()
	target := pgtest.URL(t)
	admin := pgtest.Connect(t, target)
	if _, err := admin.Exec(t.Context(), `CREATE SCHEMA forge`); err != nil {
		t.Fatal(err)
	}
	url := pgtest.StartBouncer(t, target, "transaction").URL()
	ping := func(schema string) error {
		pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: url, Schema: schema, Pooled: true})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		return postgres.Ping(t.Context(), pool)
	}
	if err := ping("forge"); err == nil || !strings.Contains(err.Error(), "ALTER ROLE") {
		t.Errorf("another schema: Ping = %v", err)
	}
	if err := ping("public"); err != nil {
		t.Errorf("the role's own schema: %v", err)
	}
}
