package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/filter"
)

// silenceAsk gives the duration of a silence, by either For or Until, and its reason.
type silenceAsk struct {
	For    string    `json:"for"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
}

// unsilencedDocument reports whether a silence was ended.
type unsilencedDocument struct {
	Alert   string `json:"alert"`
	Changed bool   `json:"changed"`
}

// triedDocument names the targets that will be notified.
type triedDocument struct {
	Alert   string   `json:"alert"`
	Targets []string `json:"targets"`
}

func (s *API) alertRoutes() []route.Route {
	ofAlert := slices.Concat([]route.Parameter{route.Text("alert", "Only of this alert.")}, route.Paged)
	routes := []route.Route{
		get(s, "/api/v1/alerts", route.Operation{
			ID: "listAlerts", Summary: "List the alerts, firing ones first",
			About: "Returns the alerts in force with their open occurrences and silences. The list is complete.",
			Query: []route.Parameter{filterParameter("state:firing severity:critical", alerts.FilterTable.Keys()), sortParameter(alerts.Orders)},
		}, filtered(s, alerts.FilterTable, alerts.Orders, s.Source.Alerts.List)),
		paged(s, "/api/v1/alerts/history", route.Operation{
			ID: "listOccurrences", Summary: "List occurrences that are over, newest first", About: "Returns the occurrences that are resolved.", Query: ofAlert,
		}, func(i alerts.Occurrence) int64 { return i.ID }, ofOneAlert(s.Source.Alerts.History)),
		paged(s, "/api/v1/alerts/notifications", route.Operation{
			ID: "listNotifications", Summary: "List the notifications, newest first",
			About: "Returns the notifications with their receiver, their state and the last error.", Query: ofAlert,
		}, func(n alerts.Notification) int64 { return n.ID }, ofOneAlert(s.Source.Alerts.Notifications)),
	}
	if s.Silencer == nil {
		return routes
	}
	return append(routes,
		post(s, "/api/v1/alerts/{alert}/silence", route.Operation{
			ID: "silenceAlert", Summary: "Silence an alert",
			About: "Stops notifications of the alert, for the duration `for` or until `until`. One of the two is required. Occurrences are still recorded.",
		}, s.silence),
		post(s, "/api/v1/alerts/{alert}/unsilence", route.Operation{
			ID: "unsilenceAlert", Summary: "End the silence of an alert", About: "Ends the silence of the alert." + changesNothingTwice,
		}, func(c *call, _ nothing) (unsilencedDocument, error) {
			changed, err := s.Silencer.Unsilence(c.Context(), c.PathValue("alert"), c.by)
			return unsilencedDocument{c.PathValue("alert"), changed}, err
		}),
		// The answer comes before the leader of the metrics aggregator notifies the receivers.
		post(s, "/api/v1/alerts/{alert}/test", route.Operation{
			Reply: route.Reply{Status: http.StatusAccepted},
			ID:    "testAlert", Summary: "Send a test notification to the receivers of an alert",
			About: "Sends a test notification to each receiver of the alert. The answer comes at once; the list of notifications shows the result.",
		}, func(c *call, _ nothing) (triedDocument, error) {
			targets, err := s.Silencer.Try(c.Context(), c.PathValue("alert"), c.by)
			return triedDocument{c.PathValue("alert"), targets}, err
		}))
}

func ofOneAlert[T any](read func(context.Context, []filter.Pattern, int64, int) ([]T, error)) func(*http.Request, *web.Query) ([]T, error) {
	return func(r *http.Request, q *web.Query) ([]T, error) {
		var names []filter.Pattern
		if alert := q.Values.Get("alert"); alert != "" {
			names = append(names, filter.Is("alert", alert).Text)
		}
		return read(r.Context(), names, q.Number("before"), q.Limit())
	}
}

func (s *API) silence(c *call, body silenceAsk) (made alerts.Silence, err error) {
	lasts, err := cluster.SpanOfSilence(body.For, body.Until)
	if err != nil {
		return made, err
	}
	return s.Silence(c.Context(), alerts.Silence{Alert: c.PathValue("alert"), CreatedBy: c.by, Reason: body.Reason}, lasts)
}
