package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/auditstore"
)

// Audit writes down who does what, and reads it.
type Audit interface {
	// Begin writes an action down before it is done and returns its id, End says
	// what became of it.
	Begin(ctx context.Context, e auditstore.Entry) (id int64, err error)
	End(ctx context.Context, id int64, outcome, detail string) error
	List(ctx context.Context, filter auditstore.Filter) ([]auditstore.Entry, error)
}

const (
	// endTimeout is how long an outcome waits for the database.
	endTimeout = 5 * time.Second
	// anonymous is who acts where nobody has to say who they are, or did not.
	anonymous = "anonymous"
)

// note is what an action adds to its entry.
type note struct{ text string }

type noteKey struct{}

// noteDown adds to the entry of the action that a request is for.
func noteDown(ctx context.Context, text string) {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		n.text = text
	}
}

var placeholder = regexp.MustCompile(`\{(\w+)\}`)

// commands are the words of the commands for the parts of addresses: an action is
// called the same, whichever way it is asked for.
var commands = map[string]string{
	"crons": "cron", "jobs": "job", "queues": "queue", "leaders": "leader", "nodes": "node", "tokens": "token", "bulk": "",
}

// actionName is what the audit log calls the POST of a route.
func (r route) actionName() string {
	if r.action != "" {
		return r.action
	}
	var words []string
	for part := range strings.FieldsFuncSeq(strings.TrimPrefix(placeholder.ReplaceAllString(r.path, ""), "/api/v1"), func(c rune) bool { return c == '/' }) {
		if word, ok := commands[part]; ok {
			part = word
		}
		if part != "" {
			words = append(words, part)
		}
	}
	return strings.Join(words, ".")
}

// entryOf describes a request by its route.
func entryOf(of route, r *http.Request) auditstore.Entry {
	var objects []string
	for _, key := range placeholder.FindAllStringSubmatch(of.path, -1) {
		objects = append(objects, r.PathValue(key[1]))
	}
	return auditstore.Entry{
		Actor: cmp.Or(callerOf(r.Context()).Name, anonymous), Source: addressOf(r), Action: of.actionName(), Object: strings.Join(objects, " "),
	}
}

// audited writes down what a route does, before and after it.
func (s *server) audited(of route, next http.HandlerFunc) http.HandlerFunc {
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
			s.unreadable(w, r, err)
			return
		}
		said := &note{}
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		outcome := auditstore.Failed // unless it comes to an end
		defer func() {               //nolint:contextcheck // the outcome is written for a caller who has gone, too
			s.ended(r.Context(), id, outcome, strings.TrimSpace(strconv.Itoa(recorder.status)+" "+said.text))
		}()
		next(recorder, r.WithContext(context.WithValue(r.Context(), noteKey{}, said)))
		if outcome = outcomeOf(recorder.status); outcome == auditstore.Refused {
			s.refusals.changes.take(e.Actor, s.Now())
		}
	}
}

// recorded records an action of a route that is open to everybody, once it is known to
// be done. It answers the request itself when it returns false.
func (s *server) recorded(w http.ResponseWriter, r *http.Request, action, detail string) bool {
	if s.Audit == nil {
		return true
	}
	_, err := s.Audit.Begin(r.Context(), auditstore.Entry{
		Actor: anonymous, Source: addressOf(r), Action: action, Outcome: auditstore.Done, Detail: detail,
	})
	if err != nil {
		s.unreadable(w, r, err)
	}
	return err == nil
}

// ended is also for requests whose caller has gone.
func (s *server) ended(ctx context.Context, id int64, outcome, detail string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := s.Audit.End(ctx, id, outcome, detail); err != nil {
		s.Logger.ErrorContext(ctx, "an outcome is missing in the audit log", "id", id, "outcome", outcome, "error", err)
	}
}

func outcomeOf(status int) string {
	switch {
	case status >= http.StatusInternalServerError:
		return auditstore.Failed
	case status >= http.StatusBadRequest:
		return auditstore.Refused
	default:
		return auditstore.Done
	}
}

// statusRecorder remembers what was answered.
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
