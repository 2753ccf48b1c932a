package dashboard

import (
	"net/http"
	"slices"

	"github.com/forge-scheduler/forge/internal/argschema"
)

// kindItem is a kind of job.
type kindItem struct {
	Kind string `json:"kind"`
	// Live reports whether a node has a worker for the kind now. The other kinds had a
	// worker earlier.
	Live bool `json:"live"`
}

// kindDocument is a kind with the arguments of its schema.
type kindDocument struct {
	kindItem
	Args []argschema.Field `json:"args"`
}

// apiKinds lists the kinds that can be enqueued.
func (s *apiServer) apiKinds(w http.ResponseWriter, r *http.Request) {
	live, known, err := s.Enqueuer.Kinds(r.Context())
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	items := []kindItem{}
	for _, kind := range known {
		items = append(items, kindItem{kind, slices.Contains(live, kind)})
	}
	writeJSON(w, http.StatusOK, listOf(items, ""))
}

// apiKind describes the arguments of a kind.
func (s *apiServer) apiKind(w http.ResponseWriter, r *http.Request) {
	live, known, err := s.Enqueuer.Kinds(r.Context())
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	kind := r.PathValue("kind")
	if !slices.Contains(known, kind) {
		writeProblem(w, http.StatusNotFound, "There is no such kind.")
		return
	}
	fields, err := s.Enqueuer.Fields(r.Context(), kind)
	if err != nil {
		s.answerDatabaseError(w, r, err)
		return
	}
	if fields == nil {
		fields = []argschema.Field{}
	}
	writeJSON(w, http.StatusOK, kindDocument{kindItem{kind, slices.Contains(live, kind)}, fields})
}

// apiCounts returns how many jobs are in each queue and state.
func (s *apiServer) apiCounts(w http.ResponseWriter, r *http.Request) {
	counts := s.counts.get(r.Context(), s.Now())
	if counts.at.IsZero() {
		w.Header().Set(retryHeader, "5")
		writeProblem(w, http.StatusServiceUnavailable, "The jobs are not counted yet.")
		return
	}
	writeJSON(w, http.StatusOK, listOf(counts.value, ""))
}
