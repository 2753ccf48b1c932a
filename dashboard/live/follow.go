package live

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// Follow writes each item that run sends as one JSON object per line, until run
// returns. If run fails, it aborts the connection, so that the client can detect the error.
func Follow[T any](s *auth.Guard, w http.ResponseWriter, r *http.Request, run func(ctx context.Context, send func([]T) error) error) {
	w.Header().Set("Content-Type", route.LinesMedia)
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	release := s.Limits.Followers.Acquire(r.Context(), auth.CallerName(r), 1, 0)
	if release == nil {
		w.Header().Set(web.RetryHeader, "30")
		web.WriteProblem(w, http.StatusServiceUnavailable, "Too many lists are followed on this node.")
		return
	}
	defer release()
	auth.RequestSlotOf(r.Context()).Lasting(w)
	lasting, stop := s.WhileAdmitted(r)
	defer stop()
	sendLines(s, w, lasting, run)
}

func sendLines[T any](s *auth.Guard, w http.ResponseWriter, r *http.Request, run func(ctx context.Context, send func([]T) error) error) {
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
		s.Logger.WarnContext(r.Context(), "no longer followed", "path", r.URL.Path, "error", err)
	}
	panic(http.ErrAbortHandler)
}

// InitialRows returns how many of the newest rows come first. Clients that resume after a row
// get all rows since then.
func InitialRows(after int64, limit int) int {
	if after > 0 {
		return postgres.TailAll
	}
	return limit
}
