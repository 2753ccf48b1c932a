package postgres_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/test/nodes"
)

// drainTime is how long pgx waits for a silent server before it closes a connection.
const drainTime = 15 * time.Second

// newPool returns a pool that the test closes at its end.
func newPool(t *testing.T, address string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: address, Schema: "public"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { postgres.ClosePool(pool) })
	return pool
}

// execWithin runs a statement with a timeout.
func execWithin(t *testing.T, pool *pgxpool.Pool, timeout time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := pool.Exec(ctx, "SELECT 1")
	return err
}

// A statement that timed out on a frozen server does not block the pool: the next ones connect to
// the server that is promoted in its place.
func TestDedicatedPoolReachesPromotedServer(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	primary := serverOf(t, address)
	old := pgtest.Proxy(t, address)
	var promoted atomic.Bool
	next := serve(t, func(client net.Conn) {
		if promoted.Load() {
			forward(client, primary)
		}
	})
	of := newPool(t, before(strings.Replace(address, primary, next, 1), serverOf(t, old.URL()))+"&connect_timeout=1")
	pool, err := postgres.Dedicated(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	defer postgres.ClosePool(pool)
	if err := execWithin(t, pool, nodes.WaitTimeout); err != nil {
		t.Fatal(err)
	}
	old.Stall()
	frozen := time.Now()
	if err := execWithin(t, pool, 500*time.Millisecond); err == nil {
		t.Fatal("the frozen server answers")
	}
	promoted.Store(true)
	nodes.Eventually(t, nodes.WaitTimeout, "a statement succeeds", func() bool { return execWithin(t, pool, 500*time.Millisecond) == nil })
	if took := time.Since(frozen); took > drainTime*2/3 {
		t.Errorf("the first statement on the promoted server succeeded after %s", took)
	}
}

// A healthy server has one connection of a dedicated pool.
func TestDedicatedPoolUsesOneConnection(t *testing.T) {
	t.Parallel()
	pool, err := postgres.Dedicated(t.Context(), newPool(t, pgtest.URL(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for range 20 {
		if err := execWithin(t, pool, nodes.WaitTimeout); err != nil {
			t.Fatal(err)
		}
	}
	if opened := pool.Stat().NewConnsCount(); opened != 1 {
		t.Errorf("%d connections were opened one after the other", opened)
	}
}

// A server that falls silent after the start-up of a connection does not occupy the pool.
func TestPoolGivesUpSilentNewConnection(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	primary := serverOf(t, address)
	var connections atomic.Int32
	server := serve(t, func(client net.Conn) {
		if connections.Add(1) == 1 {
			forwardUntil(client, primary, "set_config")
			return
		}
		forward(client, primary)
	})
	pool := newPool(t, strings.Replace(address, primary, server, 1)+"&connect_timeout=1")
	if err := execWithin(t, pool, time.Millisecond); err == nil {
		t.Fatal("the silent server answers")
	}
	nodes.Eventually(t, nodes.WaitTimeout/4, "the connection has been given up", func() bool { return pool.Stat().ConstructingConns() == 0 })
	if err := execWithin(t, pool, nodes.WaitTimeout); err != nil {
		t.Errorf("the next connection: %v", err)
	}
}

// forwardUntil forwards a client's statements to a server until one has a text; from then on it is
// silent.
func forwardUntil(client net.Conn, address, text string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() { _, _ = io.Copy(client, server) }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if bytes.Contains(buffer[:n], []byte(text)) {
			_, _ = io.Copy(io.Discard, client) // until the client gives up
			return
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// A pool with a connection to a server that no longer answers is closed without waiting for it.
func TestClosePoolDoesNotWaitForSilentServer(t *testing.T) {
	t.Parallel()
	link := pgtest.Proxy(t, pgtest.URL(t))
	pool := newPool(t, link.URL())
	if err := execWithin(t, pool, nodes.WaitTimeout); err != nil {
		t.Fatal(err)
	}
	link.Stall()
	if err := execWithin(t, pool, 50*time.Millisecond); err == nil {
		t.Fatal("the silent server answers")
	}
	began := time.Now()
	postgres.ClosePool(pool)
	if took := time.Since(began); took > drainTime*2/3 {
		t.Errorf("closing took %s", took)
	}
}

// The check of a connection that was idle has a limit, unless the address sets another one.
func TestIdleConnectionsAreCheckedWithTimeout(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]time.Duration{
		"":                         5 * time.Second,
		"?connect_timeout=2":       2 * time.Second,
		"?pool_ping_timeout=700ms": 700 * time.Millisecond,
	} {
		if got := newPool(t, "postgres://127.0.0.1/forge"+query).Config().PingTimeout; got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
}

// Connections to a frozen server do not keep the pool from the next server of its address: neither
// those that were idle nor those whose statements have timed out.
func TestPoolLeavesFrozenServer(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := pgtest.URL(t)
			old := pgtest.Proxy(t, address)
			pool := newPool(t, before(address, serverOf(t, old.URL()))+"&connect_timeout=1")
			const conns = 4 // the maximum
			for _, conn := range acquire(t, pool, conns) {
				conn.Release()
			}
			nodes.Eventually(t, nodes.WaitTimeout, "all connections were idle for long enough to be checked", func() bool {
				time.Sleep(1500 * time.Millisecond)
				return pool.Stat().IdleConns() == conns
			})
			if busy {
				freezeStatements(t, pool, old.Stall, conns)
			} else {
				old.Stall()
			}
			began := time.Now()
			if err := execWithin(t, pool, nodes.WaitTimeout); err != nil {
				t.Fatal(err)
			}
			// The frozen server has a second to answer: to the check or to the request to cancel, to the
			// end of a connection, and to a new one.
			if took := time.Since(began); took > 3500*time.Millisecond {
				t.Errorf("the first statement on the next server succeeded after %s", took)
			}
		})
	}
}

// freezeStatements returns when statements on all connections have timed out on a frozen server.
func freezeStatements(t *testing.T, pool *pgxpool.Pool, freeze func(), conns int) {
	t.Helper()
	acquired := acquire(t, pool, conns)
	freeze()
	var ended sync.WaitGroup
	for _, conn := range acquired {
		ended.Go(func() {
			defer conn.Release()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := conn.Exec(ctx, "SELECT 1"); err == nil {
				t.Error("the frozen server answers")
			}
		})
	}
	ended.Wait()
}
