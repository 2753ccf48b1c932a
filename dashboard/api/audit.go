package api

import (
	"context"
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/live"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// apiAudit lists the audit log, newest first. With follow it streams new entries.
func (s *API) apiAudit(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	filter := access.AuditFilter{
		Actor: q.Values.Get("actor"), Action: q.Values.Get("action"), Outcome: q.Values.Get("outcome"),
		BeforeID: q.Number("before"), AfterID: q.Number("after"), Limit: q.Limit(),
	}
	following := q.Flag("follow")
	if q.Reject(w) {
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
func (s *API) followAudit(w http.ResponseWriter, r *http.Request, filter access.AuditFilter) {
	after, first := filter.AfterID, live.InitialRows(filter.AfterID, filter.Limit)
	filter.BeforeID = 0
	live.Follow(s.Guard, w, r, func(ctx context.Context, send func([]access.AuditEntry) error) error {
		return postgres.Tail[access.AuditEntry]{
			Find: func(ctx context.Context, after int64, limit int) ([]access.AuditEntry, error) {
				filter.AfterID, filter.Limit = after, limit
				return s.Audit.List(ctx, filter)
			},
			ID: func(e access.AuditEntry) int64 { return e.ID }, Mark: func(e access.AuditEntry) string { return e.Outcome }, Emit: send,
		}.Run(ctx, after, first)
	})
}
