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

	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/config"
)

// Silencer keeps receivers from being told of alerts, and has them told to try them.
// The errors are alertstore's.
type Silencer interface {
	Silence(ctx context.Context, s alertstore.Silence, lasts alertstore.Span) (alertstore.Silence, error)
	// Unsilence says whether the alert was silenced.
	Unsilence(ctx context.Context, alert, by string) (changed bool, err error)
	// Try returns the targets that will be told.
	Try(ctx context.Context, alert, by string) (targets []string, err error)
}

// What the forms do, as the paths and the page that they lead to have it.
const (
	didSilence   = "silence"
	didUnsilence = "unsilence"
	didTry       = "test"
)

// defaultSilence is what the form offers first.
const defaultSilence = "2h"

// refuseAlert turns what a Silencer says into an answer.
func refuseAlert(err error) error {
	switch {
	case errors.Is(err, alertstore.ErrNotFound):
		return &refusal{http.StatusNotFound, "There is no such alert."}
	case errors.Is(err, alertstore.ErrTellsNobody):
		return &refusal{http.StatusConflict, "The alert tells nobody: it has no notify."}
	case errors.Is(err, alertstore.ErrInvalid):
		return wrongFields(wrongBody(err.Error()))
	default:
		return err
	}
}

// spanOfSilence reads how long a silence is to last.
func spanOfSilence(lasts string, until time.Time) (alertstore.Span, error) {
	switch {
	case lasts != "" && !until.IsZero():
		return alertstore.Span{}, wrongFields(wrongField("until", "cannot stand beside for"))
	case !until.IsZero():
		return alertstore.Span{Until: until}, nil
	case lasts == "":
		return alertstore.Span{}, wrongFields(wrongField("for", "is missing; want a time such as 2h, or until"))
	}
	d, err := config.ParseDuration(lasts)
	if err != nil {
		return alertstore.Span{}, wrongFields(wrongField("for", fmt.Sprintf("is %v (got %q); want a time such as 90m, 2h or 3d", err, lasts)))
	}
	return alertstore.Span{For: d.Std()}, nil
}

func (s *server) silence(ctx context.Context, silence alertstore.Silence, lasts alertstore.Span) (alertstore.Silence, error) {
	made, err := s.Silencer.Silence(ctx, silence, lasts)
	if err == nil {
		noteDown(ctx, "until "+made.Until.UTC().Format(time.RFC3339))
	}
	return made, refuseAlert(err)
}

// silenceAsk says how long a silence is to last, by one of For and Until, and why.
type silenceAsk struct {
	For    string    `json:"for"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
}

// unsilencedDocument says whether a silence was ended.
type unsilencedDocument struct {
	Alert   string `json:"alert"`
	Changed bool   `json:"changed"`
}

// triedDocument names the targets that will be told.
type triedDocument struct {
	Alert   string   `json:"alert"`
	Targets []string `json:"targets"`
}

func (s *server) apiSilence(w http.ResponseWriter, r *http.Request) {
	var asked silenceAsk
	err := readJSON(w, r, &asked)
	var lasts alertstore.Span
	if err == nil {
		lasts, err = spanOfSilence(asked.For, asked.Until)
	}
	var made alertstore.Silence
	if err == nil {
		made, err = s.silence(r.Context(), alertstore.Silence{
			Alert: r.PathValue("alert"), CreatedBy: whoAsks(r, viaAPI), Reason: asked.Reason,
		}, lasts)
	}
	if err != nil {
		s.answer(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, made)
}

func (s *server) apiUnsilence(w http.ResponseWriter, r *http.Request) {
	s.apiAlert(w, r, http.StatusOK, func(ctx context.Context, alert, by string) (any, error) {
		changed, err := s.Silencer.Unsilence(ctx, alert, by)
		return unsilencedDocument{alert, changed}, err
	})
}

// apiTry answers before anybody was told: the leader of the metrics aggregator does
// it, and the notifications say what came of it.
func (s *server) apiTry(w http.ResponseWriter, r *http.Request) {
	s.apiAlert(w, r, http.StatusAccepted, func(ctx context.Context, alert, by string) (any, error) {
		targets, err := s.Silencer.Try(ctx, alert, by)
		return triedDocument{alert, targets}, err
	})
}

// apiAlert does what needs no more than the alert's name.
func (s *server) apiAlert(w http.ResponseWriter, r *http.Request, status int, do func(ctx context.Context, alert, by string) (document any, err error)) {
	err := readJSON(w, r, &struct{}{})
	var document any
	if err == nil {
		document, err = do(r.Context(), r.PathValue("alert"), whoAsks(r, viaAPI))
	}
	if err != nil {
		s.answer(w, r, refuseAlert(err))
		return
	}
	writeJSON(w, status, document)
}

func (s *server) formSilence(w http.ResponseWriter, r *http.Request) {
	s.formAlert(w, r, didSilence, func(ctx context.Context, alert string, fields url.Values) error {
		lasts, until := fields.Get("for"), time.Time{}
		if text := fields.Get("until"); text != "" {
			var err error
			if until, err = wallTime("until", text, "UTC"); err != nil {
				return &refusal{http.StatusBadRequest, "until must be a time such as 2026-11-20T15:04, in UTC."}
			}
			lasts = "" // the form always has one of those
		}
		span, err := spanOfSilence(lasts, until)
		if err != nil {
			return err
		}
		asked := alertstore.Silence{Alert: alert, CreatedBy: cmp.Or(callerOf(ctx).Name, whoAsks(r, viaPage)), Reason: strings.TrimSpace(fields.Get("reason"))}
		_, err = s.silence(ctx, asked, span)
		return err
	})
}

func (s *server) formUnsilence(w http.ResponseWriter, r *http.Request) {
	s.formAlert(w, r, didUnsilence, func(ctx context.Context, alert string, _ url.Values) error {
		_, err := s.Silencer.Unsilence(ctx, alert, whoAsks(r, viaPage))
		return err
	})
}

func (s *server) formTry(w http.ResponseWriter, r *http.Request) {
	s.formAlert(w, r, didTry, func(ctx context.Context, alert string, _ url.Values) error {
		_, err := s.Silencer.Try(ctx, alert, whoAsks(r, viaPage))
		return err
	})
}

// formAlert leads back to the page of the alerts, which says what was done.
func (s *server) formAlert(w http.ResponseWriter, r *http.Request, did string, do func(ctx context.Context, alert string, fields url.Values) error) {
	fields, ok := s.form(w, r)
	if !ok {
		return
	}
	alert := r.PathValue("alert")
	if err := do(r.Context(), alert, fields); err != nil {
		s.answer(w, r, refuseAlert(err))
		return
	}
	http.Redirect(w, r, "/alerts?"+values("did", did, "alert", alert), http.StatusSeeOther)
}

// alertNotice says what the form that led here has done.
func alertNotice(ask *request) string {
	alert := ask.values.Get("alert")
	switch ask.values.Get("did") {
	case didSilence:
		return alert + " is silenced. It is evaluated and shown as before; nobody is told."
	case didUnsilence:
		return alert + " is silenced no more."
	case didTry:
		return "The receivers of " + alert + " are being told that it fires, and that it is over. What comes of it is shown below."
	default:
		return ""
	}
}

// silenceRow is the silence of an alert.
type silenceRow struct {
	By, Reason string
	Ends       stamp
}

func newSilenceRow(now time.Time, silence *alertstore.Silence) *silenceRow {
	if silence == nil {
		return nil
	}
	return &silenceRow{By: silence.CreatedBy, Reason: silence.Reason, Ends: newStamp(modeUntil, now, silence.Until)}
}

// silenceSpans are what the form offers.
var silenceSpans = []spanChoice{
	{"30m", "30 minutes"}, {"1h", "an hour"}, {defaultSilence, "2 hours"}, {"8h", "8 hours"}, {"24h", "a day"}, {"3d", "3 days"}, {"7d", "a week"},
}

type spanChoice struct{ Value, Words string }

// alertActBody asks for how long an alert is to be silent, or whether its receivers
// are really to be told.
type alertActBody struct {
	base
	Alert  alertstore.Status
	Path   string
	Silent bool
	To     string
	Spans  []spanChoice
	Chosen string
	Most   int
}

func loadAlertAct(did string) func(*server, context.Context, *request) (body, error) {
	return func(s *server, ctx context.Context, ask *request) (body, error) {
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		alerts, err := s.Source.Alerts.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("read alerts: %w", err)
		}
		name := ask.values.Get("alert")
		i := slices.IndexFunc(alerts, func(a alertstore.Status) bool { return a.Name == name })
		if i < 0 {
			return nil, refuseAlert(alertstore.ErrNotFound)
		}
		b := &alertActBody{
			base: base{name: "Test " + name, beat: s.pulseOf(facts)}, Alert: alerts[i], Path: alertPath(name) + "/" + did,
			To: strings.Join(alerts[i].Notify, ", "), Spans: silenceSpans, Chosen: defaultSilence, Most: alertstore.MaxReason,
		}
		if did == didSilence {
			b.name, b.Silent = "Silence "+name, true
		}
		return b, nil
	}
}

func alertPath(name string) string { return "/alerts/" + url.PathEscape(name) }

// silenceRoutes are those of the API.
func (s *server) silenceRoutes() []route {
	if s.Silencer == nil {
		return nil
	}
	const alert = "/api/v1/alerts/{alert}/"
	return []route{
		{path: alert + didSilence, post: s.apiSilence, write: operator, posts: takes[silenceAsk, alertstore.Silence](http.StatusOK, "Tell nobody of an alert until a time")},
		{path: alert + didUnsilence, post: s.apiUnsilence, write: operator, posts: does[unsilencedDocument](http.StatusOK, "End the silence of an alert")},
		{path: alert + didTry, post: s.apiTry, write: operator, posts: does[triedDocument](http.StatusAccepted, "Have the receivers of an alert told, to try them")},
	}
}

func (s *server) silencePages() []route {
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
