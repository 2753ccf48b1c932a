package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const waitTimeout = 30 * time.Second

func notify(t *testing.T, pool *pgxpool.Pool, channel, payload string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `SELECT pg_notify($1, $2)`, channel, payload); err != nil {
		t.Fatal(err)
	}
}

// next returns the payload of the next notification, or "interrupted" if
// notifications may have been missed.
func next(t *testing.T, q *postgres.Subscription) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	note, err := q.WaitForNotification(ctx)
	if errors.Is(err, postgres.ErrInterrupted) {
		return "interrupted"
	}
	if err != nil {
		t.Fatal(err)
	}
	return note.Payload
}

func want(t *testing.T, q *postgres.Subscription, payloads ...string) {
	t.Helper()
	for _, payload := range payloads {
		if got := next(t, q); got != payload {
			t.Fatalf("heard %q, want %q", got, payload)
		}
	}
}

// listeners returns the sessions of notifiers in this database.
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

func TestSubscribersShareOneConnection(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	n := postgres.NewNotifier(pool, slog.New(slog.DiscardHandler))
	first := n.Listen("a", "both")
	want(t, first, "interrupted")
	notify(t, pool, "b", "before anyone listened")
	second := n.Listen("b", "both")
	want(t, second, "interrupted") // without a break for the first subscriber
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
	third := n.Listen("a")
	defer third.Close()
	want(t, third, "interrupted")
	notify(t, pool, "a", "5")
	want(t, third, "5")
}

func TestChangesMergesNotifications(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	n := postgres.NewNotifier(pool, slog.New(slog.DiscardHandler))
	changes, unsubscribe := n.Changes("a", "b")
	last := n.Listen("last")
	defer last.Close()
	want(t, last, "interrupted") // so the earlier subscription is active, too
	<-changes
	notify(t, pool, "a", "1")
	notify(t, pool, "b", "2")
	notify(t, pool, "last", "3")
	want(t, last, "3")
	if len(changes) != 1 {
		t.Fatalf("%d changes pending after two notifications, want 1", len(changes))
	}
	<-changes
	unsubscribe()
	notify(t, pool, "a", "4")
	notify(t, pool, "last", "5")
	want(t, last, "5")
	if len(changes) != 0 {
		t.Fatal("notified after the end of the subscription")
	}
}

func awaitListeners(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); len(listeners(t, pool)) != n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections listen, want %d", len(listeners(t, pool)), n)
		}
	}
}

func TestBrokenConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	n := postgres.NewNotifier(pool, slog.New(slog.DiscardHandler))
	a, b := n.Listen("a"), n.Listen("b")
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

// logged receives a value after each message.
type logged chan struct{}

func (l logged) Write(text []byte) (int, error) {
	select {
	case l <- struct{}{}:
	default:
	}
	return len(text), nil
}

// A connection that neither delivers nor ends is detected by the ping.
func TestDeadConnectionIsDetectedByPing(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	link := pgtest.Proxy(t, direct.Config().ConnString())
	pool, err := pgxpool.New(t.Context(), link.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	lost := make(logged, 1)
	n := postgres.NewNotifier(pool, slog.New(slog.NewTextHandler(lost, nil)))
	postgres.SetTimeouts(n, 100*time.Millisecond, time.Second)
	q := n.Listen("a")
	defer q.Close()
	want(t, q, "interrupted")
	link.Stall()
	notify(t, direct, "a", "lost")
	select {
	case <-lost:
	case <-time.After(waitTimeout):
		t.Fatal("the dead connection was not found")
	}
	link.Resume()
	// On a slow machine other connections may be considered dead, too.
	for next(t, q) != "interrupted" {
		t.Log("heard after all, by a connection made before the link resumed")
	}
	for heard := ""; heard != "1"; heard = next(t, q) {
		notify(t, direct, "a", "1")
	}
}

// A notification received before ctx ended is returned by the next read.
func TestSubscriptionReturnsPendingAfterContextEnds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	n := postgres.NewNotifier(pool, slog.New(slog.DiscardHandler))
	q := n.Listen("a")
	defer q.Close()
	if err := q.AwaitListening(t.Context()); err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 1)
	stop := n.Subscribe([]string{"a"}, func(note *pgconn.Notification) {
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

// notifyUntil sends notifications until one is received: the first may be sent too
// early.
func notifyUntil(t *testing.T, pool *pgxpool.Pool, heard <-chan struct{}) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); {
		select {
		case <-heard:
			return
		case <-time.After(100 * time.Millisecond):
			notify(t, pool, "a", "again")
		}
	}
	t.Fatal("nothing was heard")
}
