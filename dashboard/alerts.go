package dashboard

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/internal/alerts"
)

// Alerts reads the alerts in force, their incidents and their notifications.
type Alerts interface {
	// List returns the alerts with their open incidents, firing alerts first.
	List(ctx context.Context) ([]alerts.Status, error)
	// History returns at most limit incidents that are over, newest first: those of one
	// alert, or of all if alert is empty. before is the id of the last incident of the
	// previous page, or 0.
	History(ctx context.Context, alert string, before int64, limit int) ([]alerts.Incident, error)
	// Notifications returns the sent and pending notifications in the same way.
	Notifications(ctx context.Context, alert string, before int64, limit int) ([]alerts.Notification, error)
}

func (s *apiServer) apiAlerts(w http.ResponseWriter, r *http.Request) {
	inForce, err := s.Source.Alerts.List(r.Context())
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, listOf(inForce, ""))
}

func (s *apiServer) apiAlertsHistory(w http.ResponseWriter, r *http.Request) {
	answerAlerts(s, w, r, s.Source.Alerts.History, func(i alerts.Incident) int64 { return i.ID })
}

func (s *apiServer) apiAlertNotifications(w http.ResponseWriter, r *http.Request) {
	answerAlerts(s, w, r, s.Source.Alerts.Notifications, func(n alerts.Notification) int64 { return n.ID })
}

func answerAlerts[T any](s *apiServer, w http.ResponseWriter, r *http.Request, read func(context.Context, string, int64, int) ([]T, error), id func(T) int64) {
	q := newQuery(r)
	before, limit := q.number("before"), q.limit()
	if q.reject(w) {
		return
	}
	items, err := read(r.Context(), q.values.Get("alert"), before, limit)
	answerPage(s, w, r, q, items, err, limit, id)
}

// shownAlerts is how many past incidents and notifications the page shows.
const shownAlerts = 50

type alertsBody struct {
	base
	Notice   string
	Operates bool
	Alerts   []alertRow
	History  []incidentRow
	Told     []notificationRow
}

type alertRow struct {
	alerts.Status
	Path  string
	To    string
	Open  []incidentRow
	Muted *silenceRow
}

type incidentRow struct {
	alerts.Incident
	About  string
	Level  string // the measured value
	Active stamp
	Kept   *stamp // since when the alert keeps firing although its condition no longer holds
	Ended  *stamp
	Lasted string
}

type notificationRow struct {
	alerts.Notification
	At    stamp
	About string
	Badge badge
}

// notificationBadge describes the state of a notification.
func notificationBadge(state alerts.NotificationState) badge {
	switch state {
	case alerts.NotificationDelivered:
		return badge{"delivered", "ok", "check"}
	case alerts.NotificationFailed:
		return badge{"failed", "bad", "cross"}
	case alerts.NotificationSuperseded:
		return badge{"superseded", "idle", "stop"}
	case alerts.NotificationPending:
	}
	return badge{"on its way", "wait", "clock"}
}

func (s *pageServer) loadAlerts(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	b := alertsBody{
		base: base{name: "Alerts", beat: s.pulseOf(facts)}, Notice: alertNotice(req), Operates: s.Silencer != nil && req.may(operator),
	}
	inForce, err := s.Source.Alerts.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	for _, alert := range inForce {
		row := alertRow{
			Status: alert, Path: alertPath(alert.Name), To: strings.Join(alert.Notify, ", "), Muted: newSilenceRow(facts.now, alert.Silence),
		}
		for _, incident := range alert.Incidents {
			row.Open = append(row.Open, s.incidentRow(facts, incident))
		}
		b.Alerts = append(b.Alerts, row)
	}
	history, err := s.Source.Alerts.History(ctx, "", 0, shownAlerts)
	if err != nil {
		return nil, fmt.Errorf("read the history of alerts: %w", err)
	}
	for _, incident := range history {
		b.History = append(b.History, s.incidentRow(facts, incident))
	}
	told, err := s.Source.Alerts.Notifications(ctx, "", 0, shownAlerts)
	if err != nil {
		return nil, fmt.Errorf("read notifications of alerts: %w", err)
	}
	for _, n := range told {
		b.Told = append(b.Told, notificationRow{Notification: n, At: newStamp(modeAgo, facts.now, n.CreatedAt), About: alerts.StatusSentence([]alerts.Notification{n}), Badge: notificationBadge(n.State)})
	}
	return &b, nil
}

func (s *pageServer) incidentRow(facts clusterFacts, incident alerts.Incident) incidentRow {
	row := incidentRow{
		Incident: incident, Level: strconv.FormatFloat(incident.Value, 'g', 6, 64), Active: newStamp(modeAgo, facts.now, incident.ActiveAt),
	}
	for _, name := range slices.Sorted(maps.Keys(incident.Labels)) {
		if name != "alertname" && name != "severity" {
			row.About += name + "=" + incident.Labels[name] + " "
		}
	}
	if !incident.KeptSince.IsZero() {
		kept := newStamp(modeAgo, facts.now, incident.KeptSince)
		row.Kept = &kept
	}
	if !incident.ResolvedAt.IsZero() {
		ended := newStamp(modeAgo, facts.now, incident.ResolvedAt)
		row.Ended, row.Lasted = &ended, precise(incident.ResolvedAt.Sub(incident.ActiveAt))
	}
	return row
}
