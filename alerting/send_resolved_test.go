package alerting_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/alerting"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/netguard"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// A receiver with send_resolved = false gets no resolved occurrence, and no message without a
// new occurrence. The rows of such messages are deleted.
func TestSendResolved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, seed)
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
	receivers, err := alerting.New().NewReceivers(map[string]config.Notify{
		"all":    {Type: config.NotifyWebhook, URL: hook.URL + "/all", SendResolved: true},
		"firing": {Type: config.NotifyWebhook, URL: hook.URL + "/firing"},
	}, netguard.Guard{AllowPrivate: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	dispatcher := alerts.NewDispatcher(alerts.DispatcherOptions{Pool: c.pool, Sender: receivers, Schema: "public", Logger: slog.New(slog.DiscardHandler), Notifier: postgres.NewNotifier(c.pool, slog.New(slog.DiscardHandler))})
	go func() { ended <- dispatcher.Lead(ctx, fenceOf(c.term)) }()
	notifications := func() []alerts.Notification {
		found, err := alerts.New(c.pool).Notifications(t.Context(), nil, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	occurrence := func(role string, over bool) alerts.OccurrenceFacts {
		i := alerts.OccurrenceFacts{Labels: map[string]string{"alertname": "a", "role": role}, StartsAt: time.Now().Add(-time.Minute)}
		if over {
			i.EndsAt = time.Now()
		}
		return i
	}
	for _, step := range []struct {
		ended       bool
		occurrences []alerts.OccurrenceFacts
		want        []string
	}{
		{false, []alerts.OccurrenceFacts{occurrence("x", false), occurrence("y", false)}, []string{"/all firing firing", "/firing firing firing"}},
		{true, []alerts.OccurrenceFacts{occurrence("x", false), occurrence("y", true)}, []string{"/all firing resolved"}},
		{false, []alerts.OccurrenceFacts{occurrence("x", true), occurrence("z", false)}, []string{"/all resolved firing", "/firing firing"}},
		{true, []alerts.OccurrenceFacts{occurrence("z", true)}, []string{"/all resolved"}},
	} {
		err := pgx.BeginFunc(t.Context(), c.pool, func(tx pgx.Tx) error {
			return alerts.New(tx).EnqueueAlert(t.Context(), "a", []string{"all", "firing"}, step.occurrences, step.ended)
		})
		if err != nil {
			t.Fatal(err)
		}
		isPending := func(n alerts.Notification) bool { return n.State == alerts.NotificationPending }
		for deadline := time.Now().Add(time.Minute); slices.ContainsFunc(notifications(), isPending); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the messages are not settled: %+v", notifications())
			}
		}
		var told []string
		for len(got) > 0 {
			told = append(told, <-got)
		}
		slices.Sort(told)
		if diff := cmp.Diff(step.want, told); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	delivered := map[string]int{}
	for _, n := range notifications() {
		delivered[n.Target+" "+string(n.State)]++
	}
	if diff := cmp.Diff(map[string]int{"all delivered": 4, "firing delivered": 2}, delivered); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	events, err := eventstore.New(c.pool).Find(t.Context(), eventstore.Filter{Types: []string{eventstore.NotificationDelivered}, Limit: 100})
	if err != nil || len(events) != 6 {
		t.Errorf("events %+v, %v; want 6", events, err)
	}
}
