package forge

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/watchdog"
)

// A leader's loop that waits for a statement or for a connection has not stalled. A loop
// that waits for neither has.
func TestWatchdogAllowsForDatabaseWaits(t *testing.T) {
	t.Parallel()
	pool, err := postgres.NewPool(t.Context(), postgres.PoolOptions{URL: pgtest.URL(t), Tracer: tracer{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	watch := watchdog.New(300 * time.Millisecond)
	t.Cleanup(watch.Stop)
	ctx := watch.Context(t.Context(), "work")
	executed := make(chan error, 1)
	go func() {
		_, err := pool.Exec(ctx, "SELECT pg_sleep(1)")
		executed <- err
	}()
	for waiting := true; waiting; {
		select {
		case err := <-executed:
			if waiting = false; err != nil {
				t.Fatal(err)
			}
		case <-time.After(50 * time.Millisecond):
			if part, stalled := watch.Stalled(time.Now()); stalled {
				t.Fatalf("%s stalled during a statement", part)
			}
		}
	}
	var held []*pgxpool.Conn
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	time.AfterFunc(time.Second, held[0].Release)
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if part, stalled := watch.Stalled(time.Now()); stalled {
		t.Errorf("%s stalled after the wait for a connection", part)
	}
	conn.Release()
	for _, conn := range held[1:] {
		conn.Release()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, stalled := watch.Stalled(time.Now()); stalled {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a loop that waits for nothing was not reported as stalled")
		}
	}
}
