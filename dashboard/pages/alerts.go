package pages

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/forge-scheduler/forge/dashboard/charts"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/filter"
)

// shownAlerts is how many past occurrences and notifications the page shows.
const shownAlerts = 50

type alertsBody struct {
	base
	Bar      bar
	Heads    []head
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
	where, sort := pageWhere(req, alerts.FilterTable.Keys(), alertFields), cluster.SortOf(&req.Query, alerts.Orders.Names())
	if err := req.err(); err != nil {
		return nil, err
	}
	facts, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	inForce, err := s.Source.Alerts.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	b := alertsBody{
		base: base{name: "Alerts", beat: s.pulseOf(facts)}, Bar: alertBar(where, sort, inForce), Heads: alertHeads(where, sort), Notice: alertNotice(req),
		Operates: s.Silencer != nil && req.may(route.Operator),
	}
	for _, alert := range alerts.Orders.Sort(sort, alerts.FilterTable.Select(where, facts.now, inForce)) {
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
	return &b, s.addPastAlerts(ctx, facts, where, &b)
}

// addPastAlerts reads the newest past occurrences and notifications of the alerts that the filter
// names.
func (s *Pages) addPastAlerts(ctx context.Context, facts clusterFacts, where *filter.Filter, b *alertsBody) error {
	var names []filter.Pattern
	for _, term := range where.Of("alert") {
		names = append(names, term.Text)
	}
	history, err := s.Source.Alerts.History(ctx, names, 0, shownAlerts)
	if err != nil {
		return fmt.Errorf("read the history of alerts: %w", err)
	}
	for _, occurrence := range history {
		b.History = append(b.History, s.occurrenceRow(facts, occurrence))
	}
	told, err := s.Source.Alerts.Notifications(ctx, names, 0, shownAlerts)
	if err != nil {
		return fmt.Errorf("read notifications of alerts: %w", err)
	}
	for _, n := range told {
		b.Told = append(b.Told, notificationRow{Notification: n, At: format.NewStamp(format.ModeAgo, facts.now, n.CreatedAt), About: alerts.StatusSentence([]alerts.Notification{n}), Badge: notificationBadge(n.State)})
	}
	return nil
}

// alertBar returns the filter bar of the alerts.
func alertBar(where *filter.Filter, sort string, inForce []alerts.Status) bar {
	choices := map[string][]string{}
	for _, alert := range inForce[:min(len(inForce), mostSuggested)] {
		choices["alert"] = append(choices["alert"], alert.Name)
		choices["severity"] = append(choices["severity"], alert.Severity)
		choices["receiver"] = append(choices["receiver"], alert.Notify...)
	}
	for key, known := range choices {
		choices[key] = slices.Compact(slices.Sorted(slices.Values(known)))
	}
	b := newBar("/alerts", where.String(), alerts.FilterTable.Keys(), alertFields, choices)
	b.keep("sort", sort)
	return b
}

func alertHeads(where *filter.Filter, sort string) []head {
	columns := []head{{Text: "Alert"}, {Text: "State"}, {Text: "Holds for"}, {Text: "Waits for"}, {Text: "Severity"}, {Text: "Receivers"}}
	return heads(columns, map[string]sortBy{
		"Alert": {"name", "ascending", "By name"}, "State": {"state", "descending", "Firing first"}, "Holds for": {"since", "descending", "Longest first"},
	}, cmp.Or(sort, alerts.Orders[0].Name), func(sort string) string { return "/alerts?" + web.Encode("filter", where.String(), "sort", sort) })
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
