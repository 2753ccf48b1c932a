package forge

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/dbpool"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/progress"
)

// A leader's loop that waits for a statement, or for a connection, is not found to hang,
// as one is that waits for nothing.
func TestWatchdogKnowsOfWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	pool, err := dbpool.New(t.Context(), dbpool.Options{URL: pgtest.URL(t), Tracer: tracer{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	watch := progress.NewWatch(300 * time.Millisecond)
	t.Cleanup(watch.Stop)
	ctx := watch.Context(t.Context())
	slept := make(chan error, 1)
	go func() {
		_, err := pool.Exec(ctx, "SELECT pg_sleep(1)")
		slept <- err
	}()
	for waiting := true; waiting; {
		select {
		case err := <-slept:
			if waiting = false; err != nil {
				t.Fatal(err)
			}
		case <-time.After(50 * time.Millisecond):
			if part, stalled := watch.Stalled(time.Now()); stalled {
				t.Fatalf("%s hangs, while a statement is under way", part)
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
		t.Errorf("%s hangs, after it waited for a connection", part)
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
			t.Fatal("a loop that waits for nothing is not found to hang")
		}
	}
}
