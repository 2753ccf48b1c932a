package api

import (
	"context"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/alerts"
)

func (s *API) apiAlerts(w http.ResponseWriter, r *http.Request) {
	inForce, err := s.Source.Alerts.List(r.Context())
	answerList(s, w, r, inForce, err)
}

func (s *API) apiAlertsHistory(w http.ResponseWriter, r *http.Request) {
	answerAlerts(s, w, r, s.Source.Alerts.History, func(i alerts.Incident) int64 { return i.ID })
}

func (s *API) apiAlertNotifications(w http.ResponseWriter, r *http.Request) {
	answerAlerts(s, w, r, s.Source.Alerts.Notifications, func(n alerts.Notification) int64 { return n.ID })
}

func answerAlerts[T any](s *API, w http.ResponseWriter, r *http.Request, read func(context.Context, string, int64, int) ([]T, error), id func(T) int64) {
	q := web.NewQuery(r)
	before, limit := q.Number("before"), q.Limit()
	if q.Reject(w) {
		return
	}
	items, err := read(r.Context(), q.Values.Get("alert"), before, limit)
	answerPage(s, w, r, q, items, err, limit, id)
}

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

func (s *API) apiSilence(w http.ResponseWriter, r *http.Request) {
	var asked silenceAsk
	err := web.ReadJSON(w, r, &asked)
	var lasts alerts.Span
	if err == nil {
		lasts, err = cluster.SpanOfSilence(asked.For, asked.Until)
	}
	var made alerts.Silence
	if err == nil {
		made, err = s.Silence(r.Context(), alerts.Silence{
			Alert: r.PathValue("alert"), CreatedBy: auth.RequestOrigin(r, viaAPI), Reason: asked.Reason,
		}, lasts)
	}
	s.answer(w, r, http.StatusOK, made, err)
}

func (s *API) apiUnsilence(w http.ResponseWriter, r *http.Request) {
	s.apiAlert(w, r, http.StatusOK, func(ctx context.Context, alert, by string) (any, error) {
		changed, err := s.Silencer.Unsilence(ctx, alert, by)
		return unsilencedDocument{alert, changed}, err
	})
}

// apiTry answers before the receivers are notified. The leader of the metrics aggregator
// notifies them, and the list of notifications shows the result.
func (s *API) apiTry(w http.ResponseWriter, r *http.Request) {
	s.apiAlert(w, r, http.StatusAccepted, func(ctx context.Context, alert, by string) (any, error) {
		targets, err := s.Silencer.Try(ctx, alert, by)
		return triedDocument{alert, targets}, err
	})
}

// apiAlert handles actions that need only the alert's name.
func (s *API) apiAlert(w http.ResponseWriter, r *http.Request, status int, do func(ctx context.Context, alert, by string) (document any, err error)) {
	err := web.ReadJSON(w, r, &struct{}{})
	var document any
	if err == nil {
		document, err = do(r.Context(), r.PathValue("alert"), auth.RequestOrigin(r, viaAPI))
	}
	s.answer(w, r, status, document, cluster.RefuseAlert(err))
}

// silenceRoutes returns the API routes.
func (s *API) silenceRoutes() []route.Route {
	if s.Silencer == nil {
		return nil
	}
	const alert = "/api/v1/alerts/{alert}/"
	return []route.Route{
		{Path: alert + "silence", Post: s.apiSilence, Write: route.Operator, Posts: route.Takes[silenceAsk, alerts.Silence](http.StatusOK, "Silence an alert")},
		{Path: alert + "unsilence", Post: s.apiUnsilence, Write: route.Operator, Posts: route.Does[unsilencedDocument](http.StatusOK, "End the silence of an alert")},
		{Path: alert + "test", Post: s.apiTry, Write: route.Operator, Posts: route.Does[triedDocument](http.StatusAccepted, "Send a test notification to the receivers of an alert")},
	}
}
