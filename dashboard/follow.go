package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/tail"
)

const (
	// maxStreams bounds the open streams of a node, maxStreamsOfOne those of one caller.
	maxStreams      = 256
	maxStreamsOfOne = 32
	// maxFollowers bounds the followed lists of a node, maxFollowersOfOne those of one
	// caller. Each of them reads separately.
	maxFollowers      = 64
	maxFollowersOfOne = 16
)

// followParameter is a parameter of lists that can be followed.
var followParameter = flag("follow", "Continue with new rows, oldest first, one object per line (application/x-ndjson).")

// followLines writes each item that run sends as one JSON object per line, until run
// returns. If run fails, it aborts the connection, so that the client can detect the error.
func followLines[T any](s *guard, w http.ResponseWriter, r *http.Request, run func(ctx context.Context, send func([]T) error) error) {
	w.Header().Set("Content-Type", linesMedia)
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	release := s.limits.followers.acquire(r.Context(), callerName(r), 1, 0)
	if release == nil {
		w.Header().Set(retryHeader, "30")
		writeProblem(w, http.StatusServiceUnavailable, "Too many lists are followed on this node.")
		return
	}
	defer release()
	requestSlotOf(r.Context()).lasting(w)
	lasting, stop := s.whileAdmitted(r)
	defer stop()
	sendLines(s, w, lasting, run)
}

func sendLines[T any](s *guard, w http.ResponseWriter, r *http.Request, run func(ctx context.Context, send func([]T) error) error) {
	control, lines := http.NewResponseController(w), json.NewEncoder(w)
	send := func(rows []T) error {
		for _, row := range rows {
			_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer supports deadlines
			if err := lines.Encode(row); err != nil {
				return err
			}
		}
		return control.Flush()
	}
	_, _ = w.Write(nil) // sends the headers
	_ = send(nil)
	err := run(r.Context(), send)
	if err == nil {
		return
	}
	if r.Context().Err() == nil && !errors.Is(err, jobstore.ErrNotFound) {
		s.logger.WarnContext(r.Context(), "no longer followed", "path", r.URL.Path, "error", err)
	}
	panic(http.ErrAbortHandler)
}

// initialRows returns how many of the newest rows come first. Clients that resume after a row
// get all rows since then.
func initialRows(after int64, limit int) int {
	if after > 0 {
		return tail.All
	}
	return limit
}

// apiEvents lists the event log, newest first. With follow it streams new events.
func (s *apiServer) apiEvents(w http.ResponseWriter, r *http.Request) {
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
		s.answerError(w, r, err)
		return
	}
	if following {
		s.followEvents(w, r, filter)
		return
	}
	events, err := s.Source.Events.Find(r.Context(), filter)
	answerPage(s, w, r, q, events, err, filter.Limit, func(e eventstore.Event) int64 { return e.ID })
}

func (s *apiServer) followEvents(w http.ResponseWriter, r *http.Request, filter eventstore.Filter) {
	after, first := filter.After, initialRows(filter.After, filter.Limit)
	filter.Before = 0
	followLines(s.guard, w, r, func(ctx context.Context, send func([]eventstore.Event) error) error {
		return tail.Rows[eventstore.Event]{
			Find: func(ctx context.Context, after int64, limit int) ([]eventstore.Event, error) {
				filter.After, filter.Limit = after, limit
				return s.Source.Events.Find(ctx, filter)
			},
			ID: func(e eventstore.Event) int64 { return e.ID }, Emit: send,
		}.Run(ctx, after, first)
	})
}

// apiAudit lists the audit log, newest first. With follow it streams new entries.
func (s *apiServer) apiAudit(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	filter := access.AuditFilter{
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
	answerPage(s, w, r, q, entries, err, filter.Limit, func(e access.AuditEntry) int64 { return e.ID })
}

// followAudit sends an entry a second time when its action has ended.
func (s *apiServer) followAudit(w http.ResponseWriter, r *http.Request, filter access.AuditFilter) {
	after, first := filter.AfterID, initialRows(filter.AfterID, filter.Limit)
	filter.BeforeID = 0
	followLines(s.guard, w, r, func(ctx context.Context, send func([]access.AuditEntry) error) error {
		return tail.Rows[access.AuditEntry]{
			Find: func(ctx context.Context, after int64, limit int) ([]access.AuditEntry, error) {
				filter.AfterID, filter.Limit = after, limit
				return s.Audit.List(ctx, filter)
			},
			ID: func(e access.AuditEntry) int64 { return e.ID }, Mark: func(e access.AuditEntry) string { return e.Outcome }, Emit: send,
		}.Run(ctx, after, first)
	})
}
