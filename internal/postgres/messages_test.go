package postgres_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

const shortInterval = 20 * time.Millisecond

func pollingNotifier(pool *pgxpool.Pool, interval time.Duration) *postgres.Notifier {
	return postgres.NewPollingNotifier(pool, interval, slog.New(slog.DiscardHandler))
}

// messages waits for n messages, and returns them as channel and payload. Notifications
// without payload are ignored.
func messages(t *testing.T, n int, q *postgres.Subscription) (got []string) {
	t.Helper()
	for len(got) < n {
		note, err := q.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if note.Payload != "" {
			got = append(got, note.Channel+" "+note.Payload)
		}
	}
	return got
}

func TestMessagesAreDeliveredOnceInOrder(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	n := pollingNotifier(pool, shortInterval)
	var want []string
	send := func(channel, payload string) {
		if err := n.Notify(t.Context(), channel, payload); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		want = append(want, fmt.Sprint("a payload ", i))
		send("a", fmt.Sprint("payload ", i))
	}
	send("b", "for another")
	q := n.Listen("a")
	defer q.Close()
	if err := q.AwaitListening(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, messages(t, 20, q)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	send("a", "last")
	if got := messages(t, 1, q)[0]; got != "a last" {
		t.Errorf("delivered twice: %q", got)
	}
	if left := countMessages(t, pool, "b"); left != 1 {
		t.Errorf("%d messages are left for another channel, want 1", left)
	}
}

func countMessages(t *testing.T, pool *pgxpool.Pool, channel string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM forge_mail WHERE channel = $1`, channel).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNotifyInTermRequiresCurrentTerm(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO forge_leaders (role, term, node_id, incarnation) VALUES ('scheduler', 7, 'a', 'i');
INSERT INTO forge_mail (channel, payload, sent_at) VALUES ('gone', 'x', now() - interval '2 minutes'), ('slow', 'x', now() - interval '30 seconds')`)
	if err != nil {
		t.Fatal(err)
	}
	listening := postgres.NewNotifier(pool, slog.New(slog.DiscardHandler))
	q := listening.Listen("a", "b")
	defer q.Close()
	want(t, q, "interrupted")
	for _, n := range []*postgres.Notifier{listening, pollingNotifier(pool, shortInterval)} {
		for term, want := range map[int64]bool{6: false, 7: true} {
			current, err := n.NotifyInTerm(t.Context(), "scheduler", term, "i", []string{"a", "b"}, []string{fmt.Sprint(term), fmt.Sprint(term)})
			if err != nil || current != want {
				t.Errorf("notify in term %d: %v, %v; want %v", term, current, err, want)
			}
		}
	}
	want(t, q, "7", "7")
	for channel, want := range map[string]int{"a": 1, "b": 1, "gone": 0, "slow": 1} {
		if got := countMessages(t, pool, channel); got != want {
			t.Errorf("%s: %d messages, want %d", channel, got, want)
		}
	}
}

// A channel without messages gets a notification without payload at each interval, so that
// the subscriber reads what PostgreSQL, triggers and River would have announced.
func TestPollingNotifiesSilentChannels(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	n := pollingNotifier(pool, shortInterval)
	if n.Delay() != shortInterval {
		t.Errorf("Delay() = %v", n.Delay())
	}
	q := n.Listen("a")
	defer q.Close()
	want(t, q, "interrupted", "", "")
	if err := n.Notify(t.Context(), "a", "1"); err != nil {
		t.Fatal(err)
	}
	for got := ""; got != "1"; {
		if got = next(t, q); got != "" && got != "1" {
			t.Fatalf("got %q", got)
		}
	}
	want(t, q, "")
}

// A subscriber is notified soon after Subscribe, whatever the interval, and again after
// polls have failed.
func TestPollingReportsInterruptions(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	link := pgtest.Proxy(t, direct.Config().ConnString())
	pool, err := pgxpool.New(t.Context(), link.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	n := pollingNotifier(pool, time.Hour)
	postgres.SetPollInterval(n, time.Hour)
	first := n.Listen("a")
	defer first.Close()
	want(t, first, "interrupted")
	second := n.Listen("b")
	defer second.Close()
	want(t, second, "interrupted")
	link.Cut()
	link.Resume()
	third := n.Listen("c") // its poll finds the broken connection
	defer third.Close()
	for _, q := range []*postgres.Subscription{first, second, third} {
		for next(t, q) != "interrupted" {
			t.Log("notified of a poll before the connection broke")
		}
	}
}
