package notifyqueue

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/netguard"
	"github.com/forge-scheduler/forge/internal/notify"
)

func (db *database) enqueueAlert(alert string, firing bool, targets ...string) {
	db.t.Helper()
	incident := notify.Incident{Labels: map[string]string{"alertname": alert}, StartsAt: time.Now()}
	if !firing {
		incident.EndsAt = time.Now()
	}
	err := pgx.BeginFunc(db.t.Context(), db.Pool, func(tx pgx.Tx) error {
		return EnqueueAlert(db.t.Context(), tx, alert, targets, []notify.Incident{incident}, !firing)
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

func (g *blockingSender) Send(ctx context.Context, target string, m notify.Message) error {
	g.mu.Lock()
	text := target + " firing"
	if !m.Incidents[0].EndsAt.IsZero() {
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

// TestAlertMessagesAreSentInOrder checks that the end of an incident is not sent while
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
	sent, err := OfAlert(t.Context(), db, "a", 0, 10)
	if err != nil || len(sent) != 2 || sent[0].Attempts != 0 || sent[1].Attempts != 1 {
		t.Errorf("the second is sent beside the first: %+v, %v", sent, err)
	}
	if next, err := OfAlert(t.Context(), db, "a", sent[0].ID, 10); err != nil || len(next) != 1 || next[0].ID != sent[1].ID {
		t.Errorf("what follows the first: %+v, %v", next, err)
	}
	close(g.open)
	db.wait("both are told", func() bool { return len(g.seen()) == 2 })
	db.wait("both are settled", func() bool {
		sent, err := OfAlert(t.Context(), db.Pool, "a", 0, 10)
		return err == nil && len(sent) == 2 && sent[0].State == Delivered && sent[1].State == Delivered
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"one firing", "one resolved"}, g.seen()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A receiver with send_resolved = false gets no resolved incident, and no message without a
// new incident. The rows of such messages are deleted.
func TestSendResolved(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	got := make(chan string, 16)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ Alerts []struct{ Status string } }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		text := r.URL.Path
		for _, alert := range body.Alerts {
			text += " " + alert.Status
		}
		got <- text
	}))
	t.Cleanup(hook.Close)
	receivers, err := notify.New(map[string]config.Notify{
		"all":    {Type: config.NotifyWebhook, URL: hook.URL + "/all", SendResolved: true},
		"firing": {Type: config.NotifyWebhook, URL: hook.URL + "/firing"},
	}, netguard.Guard{AllowPrivate: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop := db.lead(db.makeLeader(1), receivers)
	incident := func(role string, over bool) notify.Incident {
		i := notify.Incident{Labels: map[string]string{"alertname": "a", "role": role}, StartsAt: time.Now().Add(-time.Minute)}
		if over {
			i.EndsAt = time.Now()
		}
		return i
	}
	for _, step := range []struct {
		ended     bool
		incidents []notify.Incident
		want      []string
	}{
		{false, []notify.Incident{incident("x", false), incident("y", false)}, []string{"/all firing firing", "/firing firing firing"}},
		{true, []notify.Incident{incident("x", false), incident("y", true)}, []string{"/all firing resolved"}},
		{false, []notify.Incident{incident("x", true), incident("z", false)}, []string{"/all resolved firing", "/firing firing"}},
		{true, []notify.Incident{incident("z", true)}, []string{"/all resolved"}},
	} {
		err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
			return EnqueueAlert(t.Context(), tx, "a", []string{"all", "firing"}, step.incidents, step.ended)
		})
		if err != nil {
			t.Fatal(err)
		}
		db.wait("the messages are settled", func() bool {
			return !slices.ContainsFunc(db.all(), func(n Notification) bool { return n.State == Pending })
		})
		var told []string
		for len(got) > 0 {
			told = append(told, <-got)
		}
		slices.Sort(told)
		if diff := cmp.Diff(step.want, told); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	delivered := map[string]int{}
	for _, n := range db.all() {
		delivered[n.Target+" "+string(n.State)]++
	}
	if diff := cmp.Diff(map[string]int{"all delivered": 4, "firing delivered": 2}, delivered); diff != "" || len(db.events(eventstore.NotificationDelivered)) != 6 {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// A message that supersedes one about a new incident is about a new incident itself.
func TestEndedAfterSuperseded(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for _, ended := range []bool{true, false, true, true} {
		err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
			return EnqueueAlert(t.Context(), tx, "a", []string{"one"}, nil, ended)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	told, err := OfAlert(t.Context(), db, "a", 0, 10)
	if err != nil || len(told) != 4 {
		t.Fatalf("%+v, %v", told, err)
	}
	got := []bool{told[3].Facts.Ended, told[2].Facts.Ended, told[1].Facts.Ended, told[0].Facts.Ended}
	if diff := cmp.Diff([]bool{true, false, false, false}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
