package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
)

// Silencer silences and tests alerts. Its errors are those of package alerts.
type Silencer interface {
	Silence(ctx context.Context, s alerts.Silence, lasts alerts.Span) (alerts.Silence, error)
	// Unsilence ends a silence. It reports whether the alert was silenced.
	Unsilence(ctx context.Context, alert, by string) (changed bool, err error)
	// Try returns the targets that will be notified.
	Try(ctx context.Context, alert, by string) (targets []string, err error)
}

// The actions of the forms, as in their paths and in the parameter did.
const (
	didSilence   = "silence"
	didUnsilence = "unsilence"
	didTry       = "test"
)

// defaultSilence is the initial choice in the form.
const defaultSilence = "2h"

// refuseAlert converts an error of the Silencer to an answer.
func refuseAlert(err error) error {
	switch {
	case errors.Is(err, alerts.ErrNotFound):
		return &refusal{http.StatusNotFound, "There is no such alert."}
	case errors.Is(err, alerts.ErrTellsNobody):
		return &refusal{http.StatusConflict, "The alert has no receivers: it has no notify."}
	case errors.Is(err, alerts.ErrNoEngine):
		return &refusal{http.StatusConflict, "This node's program cannot evaluate alerts. Ask a node that runs forge serve."}
	case errors.Is(err, alerts.ErrInvalid):
		return wrongFields(wrongBody(err.Error()))
	default:
		return err
	}
}

// spanOfSilence parses the duration of a silence.
func spanOfSilence(lasts string, until time.Time) (alerts.Span, error) {
	switch {
	case lasts != "" && !until.IsZero():
		return alerts.Span{}, wrongFields(wrongField("until", "cannot be combined with for"))
	case !until.IsZero():
		return alerts.Span{Until: until}, nil
	case lasts == "":
		return alerts.Span{}, wrongFields(wrongField("for", "is missing; want a time such as 2h, or until"))
	}
	d, err := config.ParseDuration(lasts)
	if err != nil {
		return alerts.Span{}, wrongFields(wrongField("for", fmt.Sprintf("is %v (got %q); want a time such as 90m, 2h or 3d", err, lasts)))
	}
	return alerts.Span{For: d.Std()}, nil
}

func (s *clusterState) silence(ctx context.Context, silence alerts.Silence, lasts alerts.Span) (alerts.Silence, error) {
	made, err := s.Silencer.Silence(ctx, silence, lasts)
	if err == nil {
		noteAction(ctx, "until "+made.Until.UTC().Format(time.RFC3339))
	}
	return made, refuseAlert(err)
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

func (s *apiServer) apiSilence(w http.ResponseWriter, r *http.Request) {
	var asked silenceAsk
	err := readJSON(w, r, &asked)
	var lasts alerts.Span
	if err == nil {
		lasts, err = spanOfSilence(asked.For, asked.Until)
	}
	var made alerts.Silence
	if err == nil {
		made, err = s.silence(r.Context(), alerts.Silence{
			Alert: r.PathValue("alert"), CreatedBy: requestOrigin(r, viaAPI), Reason: asked.Reason,
		}, lasts)
	}
	if err != nil {
		s.answerError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, made)
}

func (s *apiServer) apiUnsilence(w http.ResponseWriter, r *http.Request) {
	s.apiAlert(w, r, http.StatusOK, func(ctx context.Context, alert, by string) (any, error) {
		changed, err := s.Silencer.Unsilence(ctx, alert, by)
		return unsilencedDocument{alert, changed}, err
	})
}

// apiTry answers before the receivers are notified. The leader of the metrics aggregator
// notifies them, and the list of notifications shows the result.
func (s *apiServer) apiTry(w http.ResponseWriter, r *http.Request) {
	s.apiAlert(w, r, http.StatusAccepted, func(ctx context.Context, alert, by string) (any, error) {
		targets, err := s.Silencer.Try(ctx, alert, by)
		return triedDocument{alert, targets}, err
	})
}

// apiAlert handles actions that need only the alert's name.
func (s *apiServer) apiAlert(w http.ResponseWriter, r *http.Request, status int, do func(ctx context.Context, alert, by string) (document any, err error)) {
	err := readJSON(w, r, &struct{}{})
	var document any
	if err == nil {
		document, err = do(r.Context(), r.PathValue("alert"), requestOrigin(r, viaAPI))
	}
	if err != nil {
		s.answerError(w, r, refuseAlert(err))
		return
	}
	writeJSON(w, status, document)
}

func (s *pageServer) formSilence(w http.ResponseWriter, r *http.Request) {
	s.formAlert(w, r, didSilence, func(ctx context.Context, alert string, fields url.Values) error {
		lasts, until := fields.Get("for"), time.Time{}
		if text := fields.Get("until"); text != "" {
			var err error
			if until, err = wallTime("until", text, "UTC"); err != nil {
				return &refusal{http.StatusBadRequest, "until must be a time such as 2026-11-20T15:04, in UTC."}
			}
			lasts = "" // the form always submits for
		}
		span, err := spanOfSilence(lasts, until)
		if err != nil {
			return err
		}
		asked := alerts.Silence{Alert: alert, CreatedBy: cmp.Or(callerOf(ctx).Name, requestOrigin(r, viaPage)), Reason: strings.TrimSpace(fields.Get("reason"))}
		_, err = s.silence(ctx, asked, span)
		return err
	})
}

func (s *pageServer) formUnsilence(w http.ResponseWriter, r *http.Request) {
	s.formAlert(w, r, didUnsilence, func(ctx context.Context, alert string, _ url.Values) error {
		_, err := s.Silencer.Unsilence(ctx, alert, requestOrigin(r, viaPage))
		return err
	})
}

func (s *pageServer) formTry(w http.ResponseWriter, r *http.Request) {
	s.formAlert(w, r, didTry, func(ctx context.Context, alert string, _ url.Values) error {
		_, err := s.Silencer.Try(ctx, alert, requestOrigin(r, viaPage))
		return err
	})
}

// formAlert handles a form and redirects to the page of the alerts, which reports the
// result.
func (s *pageServer) formAlert(w http.ResponseWriter, r *http.Request, did string, do func(ctx context.Context, alert string, fields url.Values) error) {
	fields, ok := s.form(w, r)
	if !ok {
		return
	}
	alert := r.PathValue("alert")
	if err := do(r.Context(), alert, fields); err != nil {
		s.answerError(w, r, refuseAlert(err))
		return
	}
	http.Redirect(w, r, "/alerts?"+values("did", did, "alert", alert), http.StatusSeeOther)
}

// alertNotice reports the result of the form that redirected to the page.
func alertNotice(req *request) string {
	alert := req.values.Get("alert")
	switch req.values.Get("did") {
	case didSilence:
		return alert + " is silenced. It is evaluated and shown as before; no notifications are sent."
	case didUnsilence:
		return alert + " is no longer silenced."
	case didTry:
		return "The receivers of " + alert + " are being notified that it fires, and that it is resolved. The results are shown below."
	default:
		return ""
	}
}

// silenceRow is the silence of an alert.
type silenceRow struct {
	By, Reason string
	Ends       stamp
}

func newSilenceRow(now time.Time, silence *alerts.Silence) *silenceRow {
	if silence == nil {
		return nil
	}
	return &silenceRow{By: silence.CreatedBy, Reason: silence.Reason, Ends: newStamp(modeUntil, now, silence.Until)}
}

// silenceSpans are the choices of the form.
var silenceSpans = []spanChoice{
	{"30m", "30 minutes"}, {"1h", "an hour"}, {defaultSilence, "2 hours"}, {"8h", "8 hours"}, {"24h", "a day"}, {"3d", "3 days"}, {"7d", "a week"},
}

type spanChoice struct{ Value, Words string }

// alertActBody is the form to silence an alert, or the confirmation page of a test.
type alertActBody struct {
	base
	Alert  alerts.Status
	Path   string
	Silent bool
	To     string
	Spans  []spanChoice
	Chosen string
	Most   int
}

func loadAlertAct(did string) func(*pageServer, context.Context, *request) (body, error) {
	return func(s *pageServer, ctx context.Context, req *request) (body, error) {
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		inForce, err := s.Source.Alerts.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("read alerts: %w", err)
		}
		name := req.values.Get("alert")
		i := slices.IndexFunc(inForce, func(a alerts.Status) bool { return a.Name == name })
		if i < 0 {
			return nil, refuseAlert(alerts.ErrNotFound)
		}
		b := &alertActBody{
			base: base{name: "Test " + name, beat: s.pulseOf(facts)}, Alert: inForce[i], Path: alertPath(name) + "/" + did,
			To: strings.Join(inForce[i].Notify, ", "), Spans: silenceSpans, Chosen: defaultSilence, Most: alerts.MaxReason,
		}
		if did == didSilence {
			b.name, b.Silent = "Silence "+name, true
		}
		return b, nil
	}
}

func alertPath(name string) string { return "/alerts/" + url.PathEscape(name) }

// silenceRoutes returns the API routes.
func (s *apiServer) silenceRoutes() []route {
	if s.Silencer == nil {
		return nil
	}
	const alert = "/api/v1/alerts/{alert}/"
	return []route{
		{path: alert + "silence", post: s.apiSilence, write: operator, posts: takes[silenceAsk, alerts.Silence](http.StatusOK, "Silence an alert")},
		{path: alert + "unsilence", post: s.apiUnsilence, write: operator, posts: does[unsilencedDocument](http.StatusOK, "End the silence of an alert")},
		{path: alert + "test", post: s.apiTry, write: operator, posts: does[triedDocument](http.StatusAccepted, "Send a test notification to the receivers of an alert")},
	}
}

func (s *pageServer) silencePages() []route {
	if s.Silencer == nil {
		return nil
	}
	const alert = "/alerts/{alert}/"
	return []route{
		{path: alert + didSilence, get: s.page("silence"), post: s.formSilence, read: operator, write: operator},
		{path: alert + didUnsilence, post: s.formUnsilence, write: operator},
		{path: alert + didTry, get: s.page("tryalert"), post: s.formTry, read: operator, write: operator},
	}
}
