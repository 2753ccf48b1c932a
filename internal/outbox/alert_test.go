package outbox

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/notify"
)

func (db *database) tell(alert string, firing bool, targets ...string) {
	db.t.Helper()
	incident := notify.Incident{Labels: map[string]string{"alertname": alert}, StartsAt: time.Now()}
	if !firing {
		incident.EndsAt = time.Now()
	}
	err := pgx.BeginFunc(db.t.Context(), db.Pool, func(tx pgx.Tx) error {
		return TellOfAlert(db.t.Context(), tx, alert, targets, []notify.Incident{incident})
	})
	if err != nil {
		db.t.Fatal(err)
	}
}

// gate is a Sender that holds the first message until it is opened.
type gate struct {
	mu   sync.Mutex
	got  []string
	open chan struct{}
}

func (g *gate) Send(ctx context.Context, target string, m notify.Message) error {
	g.mu.Lock()
	text := target + " firing"
	if !m.Incidents[0].EndsAt.IsZero() {
		text = target + " resolved"
	}
	g.got = append(g.got, text)
	g.mu.Unlock()
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.got...)
}

// The end of an incident is not told while its beginning is on its way, be it for
// the second time because a leader died.
func TestAlertsAreToldInTheirOrder(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	g := &gate{open: make(chan struct{})}
	db.tell("a", true, "one")
	db.exec(`UPDATE forge_notifications SET sending = true`)
	db.tell("a", false, "one")
	stop := db.lead(db.mint(1), g)
	db.wait("the first is on its way", func() bool { return len(g.seen()) > 0 })
	told, err := OfAlert(t.Context(), db, "a", 0, 10)
	if err != nil || len(told) != 2 || told[0].Attempts != 0 || told[1].Attempts != 1 {
		t.Errorf("the second is sent beside the first: %+v, %v", told, err)
	}
	if next, err := OfAlert(t.Context(), db, "a", told[0].ID, 10); err != nil || len(next) != 1 || next[0].ID != told[1].ID {
		t.Errorf("what follows the first: %+v, %v", next, err)
	}
	close(g.open)
	db.wait("both are told", func() bool { return len(g.seen()) == 2 })
	db.wait("both are settled", func() bool {
		told, err := OfAlert(t.Context(), db.Pool, "a", 0, 10)
		return err == nil && len(told) == 2 && told[0].State == Delivered && told[1].State == Delivered
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"one firing", "one resolved"}, g.seen()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
