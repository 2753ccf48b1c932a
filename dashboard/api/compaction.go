package api

import (
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/web"
)

// apiCompaction returns the newest passes of the compactor and the sizes of the tables.
func (s *API) apiCompaction(w http.ResponseWriter, r *http.Request) {
	q := web.NewQuery(r)
	limit := q.Limit()
	if q.Reject(w) {
		return
	}
	status, err := s.Source.Compaction.Status(r.Context(), limit)
	s.answer(w, r, http.StatusOK, status, err)
}
