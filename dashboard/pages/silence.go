package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/alerts"
)

// The actions of the forms, as in their paths and in the parameter did.
const (
	didSilence   = "silence"
	didUnsilence = "unsilence"
	didTry       = "test"
)

// defaultSilence is the initial choice in the form.
const defaultSilence = "2h"

func (s *Pages) formSilence(w http.ResponseWriter, r *http.Request) {
	s.formAlert(w, r, didSilence, func(ctx context.Context, alert string, fields url.Values) error {
		lasts, until := fields.Get("for"), time.Time{}
		if text := fields.Get("until"); text != "" {
			var err error
			if until, err = wallTime("until", text, "UTC"); err != nil {
				return web.Refuse(http.StatusBadRequest, "until must be a time such as 2026-11-20T15:04, in UTC.")
			}
			lasts = "" // the form always submits for
		}
		span, err := cluster.SpanOfSilence(lasts, until)
		if err != nil {
			return err
		}
		asked := alerts.Silence{Alert: alert, CreatedBy: cmp.Or(auth.CallerOf(ctx).Name, auth.RequestOrigin(r, viaPage)), Reason: strings.TrimSpace(fields.Get("reason"))}
		_, err = s.Silence(ctx, asked, span)
		return err
	})
}

func (s *Pages) formUnsilence(w http.ResponseWriter, r *http.Request) {
	s.formAlert(w, r, didUnsilence, func(ctx context.Context, alert string, _ url.Values) error {
		_, err := s.Silencer.Unsilence(ctx, alert, auth.RequestOrigin(r, viaPage))
		return err
	})
}

func (s *Pages) formTry(w http.ResponseWriter, r *http.Request) {
	s.formAlert(w, r, didTry, func(ctx context.Context, alert string, _ url.Values) error {
		_, err := s.Silencer.Try(ctx, alert, auth.RequestOrigin(r, viaPage))
		return err
	})
}

// formAlert handles a form and redirects to the page of the alerts, which reports the
// result.
func (s *Pages) formAlert(w http.ResponseWriter, r *http.Request, did string, do func(ctx context.Context, alert string, fields url.Values) error) {
	fields, ok := s.Form(w, r)
	if !ok {
		return
	}
	alert := r.PathValue("alert")
	if err := do(r.Context(), alert, fields); err != nil {
		s.AnswerError(w, r, err)
		return
	}
	redirectWithNotice(w, r, "/alerts?"+web.Encode("did", did, "alert", alert))
}

// alertNotice reports the result of the form that redirected to the page.
func alertNotice(req *request) string {
	alert := req.Values.Get("alert")
	switch req.Values.Get("did") {
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
	Ends       format.Stamp
}

func newSilenceRow(now time.Time, silence *alerts.Silence) *silenceRow {
	if silence == nil {
		return nil
	}
	return &silenceRow{By: silence.CreatedBy, Reason: silence.Reason, Ends: format.NewStamp(format.ModeUntil, now, silence.Until)}
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

func loadAlertAct(did string) func(*Pages, context.Context, *request) (body, error) {
	return func(s *Pages, ctx context.Context, req *request) (body, error) {
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		inForce, err := s.Source.Alerts.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("read alerts: %w", err)
		}
		name := req.Values.Get("alert")
		i := slices.IndexFunc(inForce, func(a alerts.Status) bool { return a.Name == name })
		if i < 0 {
			return nil, cluster.Refuse(alerts.ErrNotFound)
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

func (s *Pages) silencePages() []route.Route {
	if s.Silencer == nil {
		return nil
	}
	const alert = "/alerts/{alert}/"
	return []route.Route{
		{Path: alert + didSilence, Get: s.page("silence"), Post: s.formSilence, Read: route.Operator, Write: route.Operator},
		{Path: alert + didUnsilence, Post: s.formUnsilence, Write: route.Operator},
		{Path: alert + didTry, Get: s.page("tryalert"), Post: s.formTry, Read: route.Operator, Write: route.Operator},
	}
}
