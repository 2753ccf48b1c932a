package alerts

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/filter"
)

// onlyA matches the alert a.
var onlyA = []filter.Pattern{{"a"}}

func (db *database) enqueueAlert(alert string, firing bool, targets ...string) {
	db.t.Helper()
	occurrence := OccurrenceFacts{Labels: map[string]string{"alertname": alert}, StartsAt: time.Now()}
	if !firing {
		occurrence.EndsAt = time.Now()
	}
	err := pgx.BeginFunc(db.t.Context(), db.Pool, func(tx pgx.Tx) error {
		return New(tx).EnqueueAlert(db.t.Context(), alert, targets, []OccurrenceFacts{occurrence}, !firing)
	})
	if err != nil {
		db.t.Fatal(err)
	}
}

// blockingSender is a Sender that blocks the first message until it is released.
type blockingSender struct {
	mu       sync.Mutex
	received []string
	open     chan struct{}
}

func (g *blockingSender) Send(ctx context.Context, target string, m Message) error {
	g.mu.Lock()
	text := target + " firing"
	if !m.Occurrences[0].EndsAt.IsZero() {
		text = target + " resolved"
	}
	g.received = append(g.received, text)
	g.mu.Unlock()
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *blockingSender) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.received...)
}

// TestAlertMessagesAreSentInOrder checks that the end of an occurrence is not sent while
// its beginning is being sent, even if that is the second attempt because a leader died.
func TestAlertMessagesAreSentInOrder(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	g := &blockingSender{open: make(chan struct{})}
	db.enqueueAlert("a", true, "one")
	db.exec(`UPDATE forge_notifications SET sending = true`)
	db.enqueueAlert("a", false, "one")
	stop := db.lead(db.makeLeader(1), g)
	db.wait("the first is on its way", func() bool { return len(g.seen()) > 0 })
	sent, err := New(db).Notifications(t.Context(), onlyA, 0, 10)
	if err != nil || len(sent) != 2 || sent[0].Attempts != 0 || sent[1].Attempts != 1 {
		t.Errorf("the second is sent beside the first: %+v, %v", sent, err)
	}
	if next, err := New(db).Notifications(t.Context(), onlyA, sent[0].ID, 10); err != nil || len(next) != 1 || next[0].ID != sent[1].ID {
		t.Errorf("what follows the first: %+v, %v", next, err)
	}
	close(g.open)
	db.wait("both are told", func() bool { return len(g.seen()) == 2 })
	db.wait("both are settled", func() bool {
		sent, err := New(db).Notifications(t.Context(), onlyA, 0, 10)
		return err == nil && len(sent) == 2 && sent[0].State == NotificationDelivered && sent[1].State == NotificationDelivered
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"one firing", "one resolved"}, g.seen()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A message that supersedes one about a new occurrence is about a new occurrence itself.
func TestEndedAfterSuperseded(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for _, ended := range []bool{true, false, true, true} {
		err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
			return New(tx).EnqueueAlert(t.Context(), "a", []string{"one"}, nil, ended)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	told, err := New(db).Notifications(t.Context(), onlyA, 0, 10)
	if err != nil || len(told) != 4 {
		t.Fatalf("%+v, %v", told, err)
	}
	got := []bool{told[3].Facts.Ended, told[2].Facts.Ended, told[1].Facts.Ended, told[0].Facts.Ended}
	if diff := cmp.Diff([]bool{true, false, false, false}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
