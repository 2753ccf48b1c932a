package dashboard

import (
	"context"
	"net/http"
	"strconv"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// apiLogs is the output of one attempt (the newest, unless attempt names one)
// after a chunk's number; with follow as a stream.
func (s *server) apiLogs(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	attempt, after, follow := q.within("attempt", maxAttempt), q.within("after", maxChunk), q.flag("follow")
	if q.reject(w) {
		return
	}
	job, ok := s.jobOf(w, r)
	if !ok {
		return
	}
	if follow {
		s.followLogs(w, r, job.ID, attempt, after)
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

// followLogs sends the chunks as they come until the attempt is over; without one,
// until the job is.
func (s *server) followLogs(w http.ResponseWriter, r *http.Request, id int64, attempt, after int) {
	followLines(s, w, r, func(ctx context.Context, send func([]jobstore.LogChunk) error) error {
		return jobstore.Follow(ctx, s.Source.Jobs, id, attempt, after, send)
	})
}
