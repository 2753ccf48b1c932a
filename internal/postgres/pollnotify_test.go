package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/postgres"
)

func TestMessagesAreTakenOnceInOrder(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint("payload ", i))
		if err := postgres.SendMessage(t.Context(), pool, "a", want[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := postgres.SendMessage(t.Context(), pool, "b", "for another"); err != nil {
		t.Fatal(err)
	}
	got, err := postgres.TakeMessages(t.Context(), pool, "a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Take() (-want +got):\n%s", diff)
	}
	if got, err := postgres.TakeMessages(t.Context(), pool, "a"); err != nil || len(got) != 0 {
		t.Errorf("taken twice: %v, %v", got, err)
	}
}

func TestSendInTermRequiresCurrentTerm(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO forge_leaders (role, term, node_id, incarnation) VALUES ('scheduler', 7, 'a', 'i');
INSERT INTO forge_mail (channel, payload, sent_at) VALUES ('gone', 'x', now() - interval '2 minutes'), ('slow', 'x', now() - interval '30 seconds')`)
	if err != nil {
		t.Fatal(err)
	}
	send := func(term int64) bool {
		current, err := postgres.SendMessageInTerm(t.Context(), pool, "scheduler", term, "i", []string{"a", "b"}, []string{"1", "2"})
		if err != nil {
			t.Fatal(err)
		}
		return current
	}
	if send(6) {
		t.Error("sent in a term that is over")
	}
	if !send(7) {
		t.Error("refused the current term")
	}
	for channel, want := range map[string]int{"a": 1, "b": 1, "gone": 0, "slow": 1} {
		if got, err := postgres.TakeMessages(t.Context(), pool, channel); err != nil || len(got) != want {
			t.Errorf("%s: %v, %v; want %d", channel, got, err, want)
		}
	}
}

func TestListenerWaitsLikeConnection(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	poll := &postgres.PollListener{DB: pool, Channel: "a", PollInterval: 20 * time.Millisecond, TickChannel: "tick"}
	next := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		note, err := poll.WaitForNotification(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return note.Channel + " " + note.Payload
	}
	if got := next(); got != "tick " {
		t.Errorf("after silence: %q", got)
	}
	for _, payload := range []string{"1", "2"} {
		if err := postgres.SendMessage(t.Context(), pool, "a", payload); err != nil {
			t.Fatal(err)
		}
	}
	if got := []string{next(), next(), next()}; !cmp.Equal(got, []string{"a 1", "a 2", "tick "}) {
		t.Errorf("got %q", got)
	}
	past, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if note, err := poll.WaitForNotification(past); err == nil {
		t.Errorf("got %v after the deadline", note)
	}
}
