package dashboard

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// maxFollowers bounds the outputs that are followed through a node: each is read
// by itself.
const maxFollowers = 64

// apiLogs is the output of one attempt (the newest, unless attempt names one)
// after a chunk's number; with follow as a stream.
func (s *server) apiLogs(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	attempt, after, follow := int(q.number("attempt")), int(q.number("after")), q.flag("follow")
	if q.reject(w) {
		return
	}
	job, ok := s.jobOf(w, r)
	if !ok {
		return
	}
	if follow {
		lasting, stop := s.whileAdmitted(r)
		defer stop()
		s.followLogs(w, lasting, job.ID, attempt, after)
		return
	}
	if attempt == 0 {
		attempt = job.LastAttempt()
	}
	chunks, err := s.Source.Jobs.Logs(r.Context(), job.ID, attempt, after)
	if err != nil {
		s.unreadable(w, r, err)
		return
	}
	next := ""
	if len(chunks) > 0 {
		next = q.next("after", strconv.Itoa(chunks[len(chunks)-1].Seq))
	}
	writeJSON(w, http.StatusOK, listOf(chunks, next))
}

// followLogs sends the chunks as they come, one JSON object a line, until the
// attempt is over; without one, until the job is. A stream that ends early is
// cut, so that the client can tell.
func (s *server) followLogs(w http.ResponseWriter, r *http.Request, id int64, attempt, after int) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	if s.followers.Add(1) > maxFollowers {
		s.followers.Add(-1)
		w.Header().Set("Retry-After", "30")
		writeProblem(w, http.StatusServiceUnavailable, "Too many outputs are followed on this node.")
		return
	}
	defer s.followers.Add(-1)
	control, lines := http.NewResponseController(w), json.NewEncoder(w)
	send := func(chunks []jobstore.LogChunk) error {
		for _, chunk := range chunks {
			_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has one
			if err := lines.Encode(chunk); err != nil {
				return err
			}
		}
		return control.Flush()
	}
	_, _ = w.Write(nil) // the headers go at once
	_ = send(nil)
	err := jobstore.Follow(r.Context(), s.Source.Jobs, id, attempt, after, send)
	if err == nil {
		return
	}
	if r.Context().Err() == nil && !errors.Is(err, jobstore.ErrNotFound) {
		s.Logger.WarnContext(r.Context(), "output no longer followed", "job_id", id, "error", err)
	}
	panic(http.ErrAbortHandler)
}
