package postgres_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// A standby answers every connection like a read-only server.
func TestPingReportsReadOnlyServer(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	address, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(address.Path, "/")
	if _, err := pool.Exec(t.Context(), "ALTER DATABASE "+name+" SET default_transaction_read_only = on"); err != nil {
		t.Fatal(err)
	}
	reader, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: address.String(), Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	err = postgres.Ping(t.Context(), reader)
	if !errors.Is(err, postgres.ErrUnreachable) || !errors.Is(err, postgres.ErrReadOnly) || !strings.Contains(err.Error(), "default_transaction_read_only is on for user") {
		t.Errorf("Ping = %v", err)
	}
}

// The idle connections are closed even though the pool is always in use, by one
// caller at a time.
func TestBurstConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: pgtest.URL(t) + "&pool_max_conn_idle_time=200ms", Schema: "public", MaxConns: 6})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var burst []*pgxpool.Conn
	for range 6 {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		burst = append(burst, conn)
	}
	for _, conn := range burst {
		conn.Release()
	}
	for deadline := time.Now().Add(30 * time.Second); pool.Stat().TotalConns() > 1; time.Sleep(2 * time.Millisecond) {
		if err := pool.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are kept", pool.Stat().TotalConns())
		}
	}
}

// Connections opened under load are closed again, unless the address sets another
// idle time.
func TestIdleConnectionsAreNotKept(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]time.Duration{
		"postgres://127.0.0.1/forge":                            15 * time.Second,
		"postgres://127.0.0.1/forge?pool_max_conn_idle_time=5m": 5 * time.Minute,
	} {
		pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: url, Schema: "public"})
		if err != nil {
			t.Fatal(err)
		}
		if got := pool.Config().MaxConnIdleTime; got != want {
			t.Errorf("%s: kept for %s, want %s", url, got, want)
		}
		pool.Close()
	}
}

// A password that was changed in the password file is used by the next connection.
func TestPoolReadsPasswordFileAgain(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	_, user := asLogin(t, address)
	file := filepath.Join(t.TempDir(), "pgpass")
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	parsed.User = url.User(user)
	owner := pgtest.Connect(t, address)
	var pool *pgxpool.Pool
	for _, password := range []string{"first", "second"} {
		exec(t, owner, "ALTER ROLE "+user+" PASSWORD '"+password+"'")
		if err := os.WriteFile(file, []byte("*:*:*:*:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if pool == nil {
			pool = newPool(t, parsed.String()+"&passfile="+url.QueryEscape(file))
		}
		pool.Reset()
		if err := pool.Ping(t.Context()); err != nil {
			t.Errorf("with the %s password: %v", password, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	exec(t, owner, "ALTER ROLE "+user+" PASSWORD 'first'")
	pool.Reset()
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("without the file: %v", err)
	}
}
