package auth

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

// Audit writes and reads the audit log.
type Audit interface {
	// Begin records an action before it is carried out and returns the id of the entry. End
	// records its outcome.
	Begin(ctx context.Context, e access.AuditEntry) (id int64, err error)
	End(ctx context.Context, id int64, outcome, detail string) error
	List(ctx context.Context, filter access.AuditFilter) ([]access.AuditEntry, error)
}

const (
	// endTimeout bounds how long recording an outcome may take.
	endTimeout = 5 * time.Second
	// Anonymous is the actor of unauthenticated requests.
	Anonymous = "anonymous"
)

// auditNote holds the text that an action adds to its entry.
type auditNote struct{ text string }

type noteKey struct{}

// NoteAction adds a text to the entry of the action that a request carries out.
func NoteAction(ctx context.Context, text string) {
	if n, ok := ctx.Value(noteKey{}).(*auditNote); ok {
		n.text = text
	}
}

// entryOf describes a request to a route.
func entryOf(of route.Route, r *http.Request) access.AuditEntry {
	var objects []string
	for _, key := range route.Placeholder.FindAllStringSubmatch(of.Path, -1) {
		objects = append(objects, r.PathValue(key[1]))
	}
	return access.AuditEntry{
		Actor: cmp.Or(CallerOf(r.Context()).Name, Anonymous), Subject: CallerOf(r.Context()).Subject,
		Source: web.AddressOf(r), Action: of.ActionName(), Object: strings.Join(objects, " "),
	}
}

// audited records the requests to a route, before and after it handles them.
func (s *Guard) audited(of route.Route, next http.HandlerFunc) http.HandlerFunc {
	if s.Audit == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		e := entryOf(of, r)
		if s.tooManyRefused(w, r, e) {
			return
		}
		id, err := s.Audit.Begin(r.Context(), e)
		if err != nil {
			s.AnswerDatabaseError(w, r, err)
			return
		}
		said := &auditNote{}
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		outcome := access.Failed // if the handler panics
		defer func() {           //nolint:contextcheck // the outcome is recorded even if the caller is gone
			s.recordOutcome(r.Context(), id, outcome, strings.TrimSpace(strconv.Itoa(recorder.status)+" "+said.text))
		}()
		next(recorder, r.WithContext(context.WithValue(r.Context(), noteKey{}, said)))
		if outcome = OutcomeOf(recorder.status); outcome == access.Refused {
			s.refusals.changes.take(e.Actor, s.now())
		}
	}
}

// RecordDone records a completed action of a route that is open to everybody. If it returns
// false, it has answered the request.
func (s *Guard) RecordDone(w http.ResponseWriter, r *http.Request, action, detail string) bool {
	if s.Audit == nil {
		return true
	}
	_, err := s.Audit.Begin(r.Context(), access.AuditEntry{
		Actor: cmp.Or(CallerOf(r.Context()).Name, Anonymous), Subject: CallerOf(r.Context()).Subject,
		Source: web.AddressOf(r), Action: action, Outcome: access.Done, Detail: detail,
	})
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
	}
	return err == nil
}

// recordOutcome records an outcome, even if the caller is gone.
func (s *Guard) recordOutcome(ctx context.Context, id int64, outcome, detail string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := s.Audit.End(ctx, id, outcome, detail); err != nil {
		s.Logger.ErrorContext(ctx, "an outcome is missing in the audit log", "id", id, "outcome", outcome, "error", err)
	}
}

// OutcomeOf returns the outcome that the audit log has for a status.
func OutcomeOf(status int) string {
	switch {
	case status >= http.StatusInternalServerError:
		return access.Failed
	case status >= http.StatusBadRequest:
		return access.Refused
	default:
		return access.Done
	}
}

// statusRecorder records the status of the answer.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (w *statusRecorder) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusRecorder) Write(piece []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(piece)
}

func (w *statusRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// RequestOrigin describes the origin of a request, for the ledger and the event log.
func RequestOrigin(r *http.Request, way string) string {
	from := way + " from " + web.AddressOf(r)
	if name := CallerOf(r.Context()).Name; name != "" {
		return name + " through " + from
	}
	return from
}
