package live

import (
	"context"
	"encoding/json"
	"errors"
	"io"
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
	lines := json.NewEncoder(w)
	lasting(s, w, r, route.LinesMedia, func(ctx context.Context, write func(func() error) error) error {
		control := http.NewResponseController(w)
		send := func(rows []T) error {
			for _, row := range rows {
				if err := write(func() error { return lines.Encode(row) }); err != nil {
					return err
				}
			}
			return control.Flush()
		}
		_ = send(nil) // sends the headers
		return run(ctx, send)
	})
}

// TextMedia is the media type of plain text.
const TextMedia = "text/plain"

// Text writes the text that run sends in parts, in the same way.
func Text(s *auth.Guard, w http.ResponseWriter, r *http.Request, run func(ctx context.Context, send func(string) error) error) {
	lasting(s, w, r, TextMedia+"; charset=utf-8", func(ctx context.Context, write func(func() error) error) error {
		return run(ctx, func(part string) error {
			return write(func() error {
				_, err := io.WriteString(w, part)
				return err
			})
		})
	})
}

// lasting runs an answer that may take longer than a request. run calls write for each part.
func lasting(s *auth.Guard, w http.ResponseWriter, r *http.Request, media string, run func(ctx context.Context, write func(func() error) error) error) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	release := s.Limits.Followers.Acquire(r.Context(), auth.CallerName(r), 1, 0)
	if release == nil {
		w.Header().Del("Content-Disposition")
		w.Header().Set(web.RetryHeader, "30")
		web.WriteProblem(w, http.StatusServiceUnavailable, "Too many lists are followed on this node.")
		return
	}
	defer release()
	auth.RequestSlotOf(r.Context()).Lasting(w)
	admitted, stop := s.WhileAdmitted(r)
	defer stop()
	writeParts(s, w, admitted, run)
}

func writeParts(s *auth.Guard, w http.ResponseWriter, r *http.Request, run func(ctx context.Context, write func(func() error) error) error) {
	control := http.NewResponseController(w)
	_, _ = w.Write(nil) // sends the headers
	err := run(r.Context(), func(part func() error) error {
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer supports deadlines
		return part()
	})
	if err == nil {
		return
	}
	if r.Context().Err() == nil && !errors.Is(err, jobstore.ErrNotFound) {
		s.Logger.WarnContext(r.Context(), "no longer followed", "path", r.URL.Path, "error", err)
	}
	panic(http.ErrAbortHandler)
}

// InitialRows returns how many of the newest rows come first. Clients that name a row or an
// instant from which they follow get all rows since then.
func InitialRows(since bool, limit int) int {
	if since {
		return postgres.TailAll
	}
	return limit
}
