package api

import (
	"net/http"
	"slices"

	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/argschema"
)

// KindItem is a kind of job.
type KindItem struct {
	Kind string `json:"kind"`
	// Live reports whether a node has a worker for the kind now. The other kinds had a
	// worker earlier.
	Live bool `json:"live"`
}

// KindDocument is a kind with the arguments of its schema.
type KindDocument struct {
	KindItem
	Args []argschema.Field `json:"args"`
}

// apiKinds lists the kinds that can be enqueued.
func (s *API) apiKinds(w http.ResponseWriter, r *http.Request) {
	live, known, err := s.Enqueuer.Kinds(r.Context())
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	items := []KindItem{}
	for _, kind := range known {
		items = append(items, KindItem{kind, slices.Contains(live, kind)})
	}
	web.WriteJSON(w, http.StatusOK, web.ListOf(items, ""))
}

// apiKind describes the arguments of a kind.
func (s *API) apiKind(w http.ResponseWriter, r *http.Request) {
	live, known, err := s.Enqueuer.Kinds(r.Context())
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	kind := r.PathValue("kind")
	if !slices.Contains(known, kind) {
		web.WriteProblem(w, http.StatusNotFound, "There is no such kind.")
		return
	}
	fields, err := s.Enqueuer.Fields(r.Context(), kind)
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	if fields == nil {
		fields = []argschema.Field{}
	}
	web.WriteJSON(w, http.StatusOK, KindDocument{KindItem{kind, slices.Contains(live, kind)}, fields})
}

// apiCounts returns how many jobs are in each queue and state.
func (s *API) apiCounts(w http.ResponseWriter, r *http.Request) {
	counts := s.Counts.Get(r.Context(), s.Now())
	if counts.At.IsZero() {
		w.Header().Set(web.RetryHeader, "5")
		web.WriteProblem(w, http.StatusServiceUnavailable, "The jobs are not counted yet.")
		return
	}
	web.WriteJSON(w, http.StatusOK, web.ListOf(counts.Value, ""))
}
