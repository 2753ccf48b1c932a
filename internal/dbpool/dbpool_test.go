package dbpool_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/dbpool"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

// A standby answers every connection as a server does that is read-only.
func TestPingSaysThatAServerIsReadOnly(t *testing.T) {
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
	reader, err := dbpool.New(t.Context(), dbpool.Options{URL: address.String(), Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	err = dbpool.Ping(t.Context(), reader)
	if !errors.Is(err, dbpool.ErrUnreachable) || !errors.Is(err, dbpool.ErrReadOnly) || !strings.Contains(err.Error(), "default_transaction_read_only is on for user") {
		t.Errorf("Ping = %v", err)
	}
}

// They go although the pool is used all the time, by one at once.
func TestBurstIsOver(t *testing.T) {
	t.Parallel()
	pool, err := dbpool.New(t.Context(), dbpool.Options{URL: pgtest.URL(t) + "&pool_max_conn_idle_time=200ms", Schema: "public", MaxConns: 6})
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

// A burst's connections go again, unless the address asks for another patience.
func TestIdleConnectionsAreNotKept(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]time.Duration{
		"postgres://127.0.0.1/forge":                            15 * time.Second,
		"postgres://127.0.0.1/forge?pool_max_conn_idle_time=5m": 5 * time.Minute,
	} {
		pool, err := dbpool.New(t.Context(), dbpool.Options{URL: url, Schema: "public"})
		if err != nil {
			t.Fatal(err)
		}
		if got := pool.Config().MaxConnIdleTime; got != want {
			t.Errorf("%s: kept for %s, want %s", url, got, want)
		}
		pool.Close()
	}
}
