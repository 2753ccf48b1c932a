package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/test/nodes"
)

func acquire(t *testing.T, pool *pgxpool.Pool, count int) (held []*pgxpool.Conn) {
	t.Helper()
	for range count {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	return held
}

// The connections of a pool wait for a silent server only until one has found another, which the
// address names by an IP address or by a host name.
func TestPoolPrefersTheServerThatAnswered(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	silent := startSilentServer(t)
	for _, address := range []string{address, strings.Replace(address, "127.0.0.1", "localhost", 1)} {
		address = before(address, silent.address) + "&connect_timeout=1"
		pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: address, Schema: "public", MaxConns: 8})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		held := acquire(t, pool, 1)
		nodes.Eventually(t, nodes.WaitTimeout, "the connection that a new pool opens by itself is open", func() bool { return pool.Stat().ConstructingConns() == 0 })
		if silent.connections.Swap(0) == 0 {
			t.Errorf("%s: no connection tried the first server", address)
		}
		held = append(held, acquire(t, pool, 3)...)
		if got := silent.connections.Swap(0); got != 0 {
			t.Errorf("%s: %d later connections waited for the silent server", address, got)
		}
		for _, conn := range held {
			conn.Release()
		}
	}
}
