package postgres_test

import (
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// countingServer is a silent server that counts its connections.
func countingServer(t *testing.T) (address string, accepted *atomic.Int32) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	accepted = &atomic.Int32{}
	go func() {
		for {
			if _, err := listener.Accept(); err != nil {
				return
			}
			accepted.Add(1)
		}
	}()
	return listener.Addr().String(), accepted
}

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

// The connections of a pool wait for a server that says nothing only until one has found another,
// which the address gives as a number or by its name.
func TestPoolRecallsTheServerThatAnswered(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	silent, accepted := countingServer(t)
	for _, host := range []string{address.Host, strings.Replace(address.Host, "127.0.0.1", "localhost", 1)} {
		of := *address
		of.Host = silent + "," + host
		query := of.Query()
		query.Set("connect_timeout", "1")
		of.RawQuery = query.Encode()
		pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: of.String(), Schema: "public", MaxConns: 8})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		held := acquire(t, pool, 1)
		for pool.Stat().ConstructingConns() > 0 { // a new pool opens one by itself
			time.Sleep(time.Millisecond)
		}
		if accepted.Swap(0) == 0 {
			t.Errorf("%s: no connection tried the first server", of.Host)
		}
		held = append(held, acquire(t, pool, 3)...)
		if got := accepted.Swap(0); got != 0 {
			t.Errorf("%s: %d later connections waited for the silent server", of.Host, got)
		}
		for _, conn := range held {
			conn.Release()
		}
	}
}
