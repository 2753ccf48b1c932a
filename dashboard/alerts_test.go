package dashboard

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/alerts"
)

func TestAlertsPage(t *testing.T) {
	t.Parallel()
	h := handlerOf(newCluster())
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
	h := handlerOf(newCluster())
	found := decode[list[alerts.Status]](t, get(t, h, "/api/v1/alerts")).Items
	if len(found) != 2 || found[0].State != alerts.Firing || found[0].Incidents[0].Labels["role"] != "scheduler" || found[1].State != alerts.Inactive {
		t.Errorf("alerts: %+v", found)
	}
	if past := decode[list[alerts.Incident]](t, get(t, h, "/api/v1/alerts/history?alert=a&limit=5")).Items; len(past) != 1 || past[0].ID != 7 {
		t.Errorf("history: %+v", past)
	}
	if told := decode[list[alerts.Notification]](t, get(t, h, "/api/v1/alerts/notifications")).Items; len(told) != 1 || told[0].Target != "slack:#ops" {
		t.Errorf("told: %+v", told)
	}
}

var anIncident = alerts.Incident{
	ID: 6, Alert: "no_scheduler_leader", Labels: map[string]string{"alertname": "no_scheduler_leader", "role": "scheduler"},
	Annotations: map[string]string{}, Notify: []string{},
	State: alerts.Firing, ActiveAt: epoch.Add(-time.Minute), FiredAt: epoch,
}

func (f fakeAlerts) ended() alerts.Incident {
	over := anIncident
	over.ID, over.State, over.ResolvedAt = 7, alerts.Resolved, epoch
	return over
}

type fakeAlerts struct{ *fakeCluster }

func (f fakeAlerts) List(context.Context) ([]alerts.Status, error) {
	return read(f.fakeCluster, func() []alerts.Status {
		return alerts.Statuses([]alerts.Rule{
			{Name: "quiet", Condition: "vector(0) > 1", Severity: "info"},
			{
				Name: "no_scheduler_leader", Condition: "sum(forge_leader_is_leader{role='scheduler'}) == 0",
				Severity: "critical", Notify: []string{"pager", "slack:#ops"},
			},
		}, []alerts.Incident{anIncident}, []alerts.Silence{{
			Alert: "quiet", CreatedBy: "ada", Reason: "<noon>", CreatedAt: epoch, Until: epoch.Add(90 * time.Minute),
		}})
	})
}

func (f fakeAlerts) History(context.Context, string, int64, int) ([]alerts.Incident, error) {
	return read(f.fakeCluster, func() []alerts.Incident { return []alerts.Incident{f.ended()} })
}

func (f fakeAlerts) Notifications(context.Context, string, int64, int) ([]alerts.Notification, error) {
	return read(f.fakeCluster, func() []alerts.Notification {
		return []alerts.Notification{{
			ID: 1, Alert: "no_scheduler_leader", Target: "slack:#ops", State: alerts.NotificationFailed, Attempts: 2, Error: "gone", CreatedAt: epoch,
		}}
	})
}
