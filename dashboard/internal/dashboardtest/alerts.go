package dashboardtest

import (
	"context"
	"fmt"
	"time"

	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/filter"
)

var anOccurrence = alerts.Occurrence{
	ID: 6, Alert: "no_scheduler_leader", Labels: map[string]string{"alertname": "no_scheduler_leader", "role": "scheduler"},
	Annotations: map[string]string{}, Notify: []string{},
	State: alerts.Firing, ActiveAt: Epoch.Add(-time.Minute), FiredAt: Epoch,
}

func (f Alerts) ended() alerts.Occurrence {
	over := anOccurrence
	over.ID, over.State, over.ResolvedAt = 7, alerts.Resolved, Epoch
	return over
}

type Alerts struct{ *Cluster }

func (f Alerts) List(context.Context) ([]alerts.Status, error) {
	return Read(f.Cluster, func() []alerts.Status {
		return alerts.Statuses([]alerts.Rule{
			{Name: "quiet", Condition: "vector(0) > 1", Severity: "info"},
			{
				Name: "no_scheduler_leader", Condition: "sum(forge_leader_is_leader{role='scheduler'}) == 0",
				Severity: "critical", Notify: []string{"pager", "slack:#ops"},
			},
		}, []alerts.Occurrence{anOccurrence}, []alerts.Silence{{
			Alert: "quiet", CreatedBy: "ada", Reason: "<noon>", CreatedAt: Epoch, Until: Epoch.Add(90 * time.Minute),
		}})
	})
}

func (f Alerts) History(context.Context, []filter.Pattern, int64, int) ([]alerts.Occurrence, error) {
	return Read(f.Cluster, func() []alerts.Occurrence { return []alerts.Occurrence{f.ended()} })
}

func (f Alerts) Notifications(context.Context, []filter.Pattern, int64, int) ([]alerts.Notification, error) {
	return Read(f.Cluster, func() []alerts.Notification {
		return []alerts.Notification{{
			ID: 1, Alert: "no_scheduler_leader", Target: "slack:#ops", State: alerts.NotificationFailed, Attempts: 2, Error: "gone", CreatedAt: Epoch,
		}}
	})
}

func (f Alerts) note(alert, what string) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.Err != nil {
		return f.Err
	}
	if alert == "nobody" {
		return alerts.ErrNotFound
	}
	f.Done = append(f.Done, what)
	return nil
}

func (f Alerts) Silence(_ context.Context, s alerts.Silence, lasts alerts.Span) (alerts.Silence, error) {
	until := "-"
	if s.Until = Epoch.Add(lasts.For); !lasts.Until.IsZero() {
		s.Until, until = lasts.Until, format.UTC(lasts.Until)
	}
	if !s.Until.After(Epoch) {
		return s, fmt.Errorf("%w: ahead", alerts.ErrInvalid)
	}
	return s, f.note(s.Alert, fmt.Sprintf("silence %s for %v until %s by %s (%s)", s.Alert, lasts.For, until, s.CreatedBy, s.Reason))
}

func (f Alerts) Unsilence(_ context.Context, alert, by string) (bool, error) {
	return true, f.note(alert, "unsilence "+alert+" by "+by)
}

func (f Alerts) Try(_ context.Context, alert, by string) ([]string, error) {
	if alert == "quiet" {
		return nil, alerts.ErrTellsNobody
	}
	return []string{"pager"}, f.note(alert, "test "+alert+" by "+by)
}
