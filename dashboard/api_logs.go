package dashboard

import (
	"context"
	"net/http"
	"strconv"

	"github.com/forge-scheduler/forge/internal/jobstore"
)

// apiLogs returns the output of one attempt, by default the newest, after a chunk number.
// With follow it streams the output.
func (s *apiServer) apiLogs(w http.ResponseWriter, r *http.Request) {
	q := newQuery(r)
	attempt, after, follow := q.atMost("attempt", maxAttempt), q.atMost("after", maxChunk), q.flag("follow")
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
		s.answerDatabaseError(w, r, err)
		return
	}
	next := ""
	if len(chunks) > 0 {
		next = q.next("after", strconv.Itoa(chunks[len(chunks)-1].Seq))
	}
	writeJSON(w, http.StatusOK, listOf(chunks, next))
}

// followLogs streams chunks until the attempt has ended or, if no attempt is named, until
// the job has ended.
func (s *apiServer) followLogs(w http.ResponseWriter, r *http.Request, id int64, attempt, after int) {
	followLines(s.guard, w, r, func(ctx context.Context, send func([]jobstore.LogChunk) error) error {
		return jobstore.Follow(ctx, s.Source.Jobs, id, attempt, after, send)
	})
}
