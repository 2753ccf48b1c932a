package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/internal/auditstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/tail"
)

// maxFollowers bounds what is followed through a node, and maxFollowersOfOne what one
// caller follows: each reads by itself.
const (
	maxFollowers      = 64
	maxFollowersOfOne = 16
)

// followParameter is of lists that can be followed.
var followParameter = flag("follow", "Go on with what comes, oldest first, one object a line (application/x-ndjson).")

// followLines sends what run passes on as it comes, one JSON object a line, until run
// ends. A stream that ends early is cut, so that the client can tell.
func followLines[T any](s *server, w http.ResponseWriter, r *http.Request, run func(ctx context.Context, send func([]T) error) error) {
	w.Header().Set("Content-Type", linesMedia)
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	release := s.limits.followers.acquire(r.Context(), callerName(r), 1, 0)
	if release == nil {
		w.Header().Set(retryHeader, "30")
		writeProblem(w, http.StatusServiceUnavailable, "Too much is followed on this node.")
		return
	}
	defer release()
	turnOf(r.Context()).lasting(w)
	lasting, stop := s.whileAdmitted(r)
	defer stop()
	sendLines(s, w, lasting, run)
}

func sendLines[T any](s *server, w http.ResponseWriter, r *http.Request, run func(ctx context.Context, send func([]T) error) error) {
	control, lines := http.NewResponseController(w), json.NewEncoder(w)
	send := func(rows []T) error {
		for _, row := range rows {
			_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has one
			if err := lines.Encode(row); err != nil {
				return err
			}
		}
		return control.Flush()
	}
	_, _ = w.Write(nil) // the headers go at once
	_ = send(nil)
	err := run(r.Context(), send)
	if err == nil {
		return
	}
	if r.Context().Err() == nil && !errors.Is(err, jobstore.ErrNotFound) {
		s.Logger.WarnContext(r.Context(), "no longer followed", "path", r.URL.Path, "error", err)
	}
	panic(http.ErrAbortHandler)
}

// beginWith is how many of the newest rows come first: all for those who go on after a
// row, whatever limit they began with.
func beginWith(after int64, limit int) int {
	if after > 0 {
		return tail.All
	}
	return limit
}

// apiEvents is the diary, newest first, or with follow as it goes on.
func (s *server) apiEvents(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	filter := eventstore.Filter{Types: q.texts("type"), Role: q.values.Get("role"), Before: q.number("before"), After: q.number("after"), Limit: q.limit()}
	following := q.flag("follow")
	if q.reject(w) {
		return
	}
	err := s.Source.Events.CheckTypes(r.Context(), filter.Types)
	if unknown, ok := errors.AsType[*eventstore.UnknownTypeError](err); ok {
		err = &refusal{http.StatusBadRequest, "type " + unknown.Error()}
	}
	if err != nil {
		s.answer(w, r, err)
		return
	}
	if following {
		s.followEvents(w, r, filter)
		return
	}
	events, err := s.Source.Events.Find(r.Context(), filter)
	answerPage(s, w, r, q, events, err, filter.Limit, func(e eventstore.Event) int64 { return e.ID })
}

func (s *server) followEvents(w http.ResponseWriter, r *http.Request, filter eventstore.Filter) {
	after, first := filter.After, beginWith(filter.After, filter.Limit)
	filter.Before = 0
	followLines(s, w, r, func(ctx context.Context, send func([]eventstore.Event) error) error {
		return tail.Rows[eventstore.Event]{
			Find: func(ctx context.Context, after int64, limit int) ([]eventstore.Event, error) {
				filter.After, filter.Limit = after, limit
				return s.Source.Events.Find(ctx, filter)
			},
			ID: func(e eventstore.Event) int64 { return e.ID }, Tell: send,
		}.Run(ctx, after, first)
	})
}

// apiAudit is the audit log, newest first, or with follow as it goes on.
func (s *server) apiAudit(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	filter := auditstore.Filter{
		Actor: q.values.Get("actor"), Action: q.values.Get("action"), Outcome: q.values.Get("outcome"),
		BeforeID: q.number("before"), AfterID: q.number("after"), Limit: q.limit(),
	}
	following := q.flag("follow")
	if q.reject(w) {
		return
	}
	if following {
		s.followAudit(w, r, filter)
		return
	}
	entries, err := s.Audit.List(r.Context(), filter)
	answerPage(s, w, r, q, entries, err, filter.Limit, func(e auditstore.Entry) int64 { return e.ID })
}

// followAudit tells of an entry again when its action has ended.
func (s *server) followAudit(w http.ResponseWriter, r *http.Request, filter auditstore.Filter) {
	after, first := filter.AfterID, beginWith(filter.AfterID, filter.Limit)
	filter.BeforeID = 0
	followLines(s, w, r, func(ctx context.Context, send func([]auditstore.Entry) error) error {
		return tail.Rows[auditstore.Entry]{
			Find: func(ctx context.Context, after int64, limit int) ([]auditstore.Entry, error) {
				filter.AfterID, filter.Limit = after, limit
				return s.Audit.List(ctx, filter)
			},
			ID: func(e auditstore.Entry) int64 { return e.ID }, Mark: func(e auditstore.Entry) string { return e.Outcome }, Tell: send,
		}.Run(ctx, after, first)
	})
}
