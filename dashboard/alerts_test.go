package dashboard

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/notifyqueue"
)

func TestAlertsPage(t *testing.T) {
	t.Parallel()
	h := newCluster().handler()
	page := get(t, h, "/alerts").Body.String()
	for _, want := range []string{
		`id="alert-no_scheduler_leader"`, "firing</span>", "inactive</span>", "<code>sum(forge_leader_is_leader{role=&#39;scheduler&#39;}) == 0</code>",
		"role=scheduler 0, since", "pager, slack:#ops", `id="incident-7"`, "slack:#ops could not be told in 2 tries (gone)",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
}

func TestAlertsAPI(t *testing.T) {
	t.Parallel()
	h := newCluster().handler()
	alerts := decode[list[alertstore.Status]](t, get(t, h, "/api/v1/alerts")).Items
	if len(alerts) != 2 || alerts[0].State != alertstore.Firing || alerts[0].Incidents[0].Labels["role"] != "scheduler" || alerts[1].State != alertstore.Inactive {
		t.Errorf("alerts: %+v", alerts)
	}
	if past := decode[list[alertstore.Incident]](t, get(t, h, "/api/v1/alerts/history?alert=a&limit=5")).Items; len(past) != 1 || past[0].ID != 7 {
		t.Errorf("history: %+v", past)
	}
	if told := decode[list[notifyqueue.Notification]](t, get(t, h, "/api/v1/alerts/notifications")).Items; len(told) != 1 || told[0].Target != "slack:#ops" {
		t.Errorf("told: %+v", told)
	}
}

var anIncident = alertstore.Incident{
	ID: 6, Alert: "no_scheduler_leader", Labels: map[string]string{"alertname": "no_scheduler_leader", "role": "scheduler"},
	Annotations: map[string]string{}, Notify: []string{},
	State: alertstore.Firing, ActiveAt: epoch.Add(-time.Minute), FiredAt: epoch,
}

func (f fakeAlerts) ended() alertstore.Incident {
	over := anIncident
	over.ID, over.State, over.ResolvedAt = 7, alertstore.Resolved, epoch
	return over
}

type fakeAlerts struct{ *fakeCluster }

func (f fakeAlerts) List(context.Context) ([]alertstore.Status, error) {
	return read(f.fakeCluster, func() []alertstore.Status {
		return alertstore.Statuses([]alertstore.Rule{
			{Name: "quiet", Condition: "vector(0) > 1", Severity: "info"},
			{
				Name: "no_scheduler_leader", Condition: "sum(forge_leader_is_leader{role='scheduler'}) == 0",
				Severity: "critical", Notify: []string{"pager", "slack:#ops"},
			},
		}, []alertstore.Incident{anIncident}, []alertstore.Silence{{
			Alert: "quiet", CreatedBy: "ada", Reason: "<noon>", CreatedAt: epoch, Until: epoch.Add(90 * time.Minute),
		}})
	})
}

func (f fakeAlerts) History(context.Context, string, int64, int) ([]alertstore.Incident, error) {
	return read(f.fakeCluster, func() []alertstore.Incident { return []alertstore.Incident{f.ended()} })
}

func (f fakeAlerts) Notifications(context.Context, string, int64, int) ([]notifyqueue.Notification, error) {
	return read(f.fakeCluster, func() []notifyqueue.Notification {
		return []notifyqueue.Notification{{
			ID: 1, Alert: "no_scheduler_leader", Target: "slack:#ops", State: notifyqueue.Failed, Attempts: 2, Error: "gone", CreatedAt: epoch,
		}}
	})
}
