package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/live"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// apiLogs returns the output of one attempt, by default the newest, after a chunk number.
// With follow it streams the output.
func (s *API) apiLogs(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	attempt, after, follow := q.AtMost("attempt", cluster.MaxAttempt), q.AtMost("after", cluster.MaxChunk), q.Flag("follow")
	if q.Reject(w) {
		return
	}
	job, ok := s.jobOf(w, r)
	if !ok {
		return
	}
	if follow {
		s.FollowLogs(w, r, job.ID, attempt, after)
		return
	}
	if attempt == 0 {
		attempt = job.LastAttempt()
	}
	chunks, err := s.Source.Jobs.Logs(r.Context(), job.ID, attempt, after)
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	next := ""
	if len(chunks) > 0 {
		next = q.Next("after", strconv.Itoa(chunks[len(chunks)-1].Seq))
	}
	web.WriteJSON(w, http.StatusOK, web.ListOf(chunks, next))
}

// FollowLogs streams chunks until the attempt has ended or, if no attempt is named, until
// the job has ended.
func (s *API) FollowLogs(w http.ResponseWriter, r *http.Request, id int64, attempt, after int) {
	live.Follow(s.Guard, w, r, func(ctx context.Context, send func([]jobstore.LogChunk) error) error {
		return jobstore.Follow(ctx, s.Source.Jobs, id, attempt, after, send)
	})
}
