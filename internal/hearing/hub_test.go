package hearing_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/hearing"
	"github.com/forge-scheduler/forge/internal/pgtest"
)

const patience = 30 * time.Second

func notify(t *testing.T, pool *pgxpool.Pool, channel, payload string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `SELECT pg_notify($1, $2)`, channel, payload); err != nil {
		t.Fatal(err)
	}
}

// next is the payload of the next notification, "interrupted" in place of one that
// may have been missed.
func next(t *testing.T, q *hearing.Queue) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	note, err := q.WaitForNotification(ctx)
	if errors.Is(err, hearing.ErrInterrupted) {
		return "interrupted"
	}
	if err != nil {
		t.Fatal(err)
	}
	return note.Payload
}

func want(t *testing.T, q *hearing.Queue, payloads ...string) {
	t.Helper()
	for _, payload := range payloads {
		if got := next(t, q); got != payload {
			t.Fatalf("heard %q, want %q", got, payload)
		}
	}
}

// listeners are the sessions of this database that hubs have.
func listeners(t *testing.T, pool *pgxpool.Pool) (pids []int) {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT pid FROM pg_stat_activity
		WHERE datname = current_database() AND (query LIKE 'LISTEN%' OR query LIKE 'UNLISTEN%' OR query = '-- ping')`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

func TestAllHearOnOneConnection(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	hub := hearing.New(pool, slog.New(slog.DiscardHandler))
	first := hub.Open("a", "both")
	want(t, first, "interrupted")
	notify(t, pool, "b", "before anyone listened")
	second := hub.Open("b", "both")
	want(t, second, "interrupted") // without a break for the first
	notify(t, pool, "a", "1")
	notify(t, pool, "b", "2")
	notify(t, pool, "both", "3")
	want(t, first, "1", "3")
	want(t, second, "2", "3")
	if pids := listeners(t, pool); len(pids) != 1 {
		t.Errorf("%d connections listen, want 1", len(pids))
	}
	second.Close()
	notify(t, pool, "b", "to nobody")
	notify(t, pool, "both", "4")
	want(t, first, "4")
	first.Close()
	awaitListeners(t, pool, 0)
	third := hub.Open("a")
	defer third.Close()
	want(t, third, "interrupted")
	notify(t, pool, "a", "5")
	want(t, third, "5")
}

func awaitListeners(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); len(listeners(t, pool)) != n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections listen, want %d", len(listeners(t, pool)), n)
		}
	}
}

func TestBrokenConnectionIsMadeAnew(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	hub := hearing.New(pool, slog.New(slog.DiscardHandler))
	a, b := hub.Open("a"), hub.Open("b")
	defer a.Close()
	defer b.Close()
	want(t, a, "interrupted")
	want(t, b, "interrupted")
	for _, pid := range listeners(t, pool) {
		if _, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, pid); err != nil {
			t.Fatal(err)
		}
	}
	want(t, a, "interrupted")
	want(t, b, "interrupted")
	notify(t, pool, "a", "1")
	notify(t, pool, "b", "2")
	want(t, a, "1")
	want(t, b, "2")
}

// logged has a value after each message.
type logged chan struct{}

func (l logged) Write(text []byte) (int, error) {
	select {
	case l <- struct{}{}:
	default:
	}
	return len(text), nil
}

// A connection that neither carries nor ends is found by itself.
func TestSilentConnectionIsFound(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	link := pgtest.Proxy(t, direct.Config().ConnString())
	pool, err := pgxpool.New(t.Context(), link.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	lost := make(logged, 1)
	hub := hearing.New(pool, slog.New(slog.NewTextHandler(lost, nil)))
	hearing.Hasten(hub, 100*time.Millisecond, time.Second)
	q := hub.Open("a")
	defer q.Close()
	want(t, q, "interrupted")
	link.Stall()
	notify(t, direct, "a", "lost")
	select {
	case <-lost:
	case <-time.After(patience):
		t.Fatal("the dead connection was not found")
	}
	link.Resume()
	// On a slow machine other connections may be taken for dead, too.
	for next(t, q) != "interrupted" {
		t.Log("heard after all, by a connection made before the link resumed")
	}
	for heard := ""; heard != "1"; heard = next(t, q) {
		notify(t, direct, "a", "1")
	}
}

// What was heard before ctx ended is not lost to who looks afterwards.
func TestQueueGivesWhatHasCome(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	hub := hearing.New(pool, slog.New(slog.DiscardHandler))
	q := hub.Open("a")
	defer q.Close()
	if err := q.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 1)
	stop := hub.Subscribe([]string{"a"}, func(note *pgconn.Notification) {
		if note != nil {
			heard <- struct{}{}
		}
	})
	notify(t, pool, "a", "1")
	notifyUntil(t, pool, heard)
	stop()
	past, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if note, err := q.WaitForNotification(past); err != nil || note.Payload != "1" {
		t.Fatalf("got %v, %v", note, err)
	}
}

// notifyUntil waits until a notification was heard, and sends another where the
// first came too soon.
func notifyUntil(t *testing.T, pool *pgxpool.Pool, heard <-chan struct{}) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		select {
		case <-heard:
			return
		case <-time.After(100 * time.Millisecond):
			notify(t, pool, "a", "again")
		}
	}
	t.Fatal("nothing was heard")
}
