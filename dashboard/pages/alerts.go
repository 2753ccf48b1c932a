package pages

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/internal/alerts"
)

// shownAlerts is how many past occurrences and notifications the page shows.
const shownAlerts = 50

type alertsBody struct {
	base
	Notice   string
	Operates bool
	Alerts   []alertRow
	History  []occurrenceRow
	Told     []notificationRow
}

type alertRow struct {
	alerts.Status
	Path  string
	To    string
	Open  []occurrenceRow
	Muted *silenceRow
}

type occurrenceRow struct {
	alerts.Occurrence
	About  string
	Level  string // the measured value
	Active format.Stamp
	Kept   *format.Stamp // since when the alert keeps firing although its condition no longer holds
	Ended  *format.Stamp
	Lasted string
	// Before leads to what happened before it began.
	Before string
	// Path is the address of the newest change of leader of the role that it is about.
	Path string
}

type notificationRow struct {
	alerts.Notification
	At    format.Stamp
	About string
	Badge charts.Badge
}

// notificationBadge describes the state of a notification.
func notificationBadge(state alerts.NotificationState) charts.Badge {
	switch state {
	case alerts.NotificationDelivered:
		return charts.Badge{Words: "delivered", Tone: "ok", Icon: "check"}
	case alerts.NotificationFailed:
		return charts.Badge{Words: "failed", Tone: "bad", Icon: "cross"}
	case alerts.NotificationSuperseded:
		return charts.Badge{Words: "superseded", Tone: "idle", Icon: "stop"}
	case alerts.NotificationPending:
	}
	return charts.Badge{Words: "on its way", Tone: "wait", Icon: "clock"}
}

func (s *Pages) loadAlerts(ctx context.Context, req *request) (body, error) {
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	b := alertsBody{
		base: base{name: "Alerts", beat: s.pulseOf(facts)}, Notice: alertNotice(req), Operates: s.Silencer != nil && req.may(route.Operator),
	}
	inForce, err := s.Source.Alerts.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	for _, alert := range inForce {
		row := alertRow{
			Status: alert, Path: alertPath(alert.Name), To: strings.Join(alert.Notify, ", "), Muted: newSilenceRow(facts.now, alert.Silence),
		}
		for _, occurrence := range alert.Occurrences {
			open := s.occurrenceRow(facts, occurrence)
			open.Path = alertRolePath(facts, occurrence.Labels, alert.Condition)
			row.Open = append(row.Open, open)
		}
		b.Alerts = append(b.Alerts, row)
	}
	history, err := s.Source.Alerts.History(ctx, "", 0, shownAlerts)
	if err != nil {
		return nil, fmt.Errorf("read the history of alerts: %w", err)
	}
	for _, occurrence := range history {
		b.History = append(b.History, s.occurrenceRow(facts, occurrence))
	}
	told, err := s.Source.Alerts.Notifications(ctx, "", 0, shownAlerts)
	if err != nil {
		return nil, fmt.Errorf("read notifications of alerts: %w", err)
	}
	for _, n := range told {
		b.Told = append(b.Told, notificationRow{Notification: n, At: format.NewStamp(format.ModeAgo, facts.now, n.CreatedAt), About: alerts.StatusSentence([]alerts.Notification{n}), Badge: notificationBadge(n.State)})
	}
	return &b, nil
}

func (s *Pages) occurrenceRow(facts clusterFacts, occurrence alerts.Occurrence) occurrenceRow {
	row := occurrenceRow{
		Occurrence: occurrence, Level: strconv.FormatFloat(occurrence.Value, 'g', 6, 64), Active: format.NewStamp(format.ModeAgo, facts.now, occurrence.ActiveAt),
		Before: changesBefore(occurrence.ActiveAt),
	}
	for _, name := range slices.Sorted(maps.Keys(occurrence.Labels)) {
		if name != "alertname" && name != "severity" {
			row.About += name + "=" + occurrence.Labels[name] + " "
		}
	}
	if !occurrence.KeptSince.IsZero() {
		kept := format.NewStamp(format.ModeAgo, facts.now, occurrence.KeptSince)
		row.Kept = &kept
	}
	if !occurrence.ResolvedAt.IsZero() {
		ended := format.NewStamp(format.ModeAgo, facts.now, occurrence.ResolvedAt)
		row.Ended, row.Lasted = &ended, format.Precise(occurrence.ResolvedAt.Sub(occurrence.ActiveAt))
	}
	return row
}
