package api

import (
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/web"
)

func (s *API) apiQueues(w http.ResponseWriter, r *http.Request) {
	queues, err := s.Source.Queues.Queues(r.Context())
	answerList(s, w, r, queues, err)
}

func (s *API) apiLimits(w http.ResponseWriter, r *http.Request) {
	usages, err := s.Source.Queues.Usages(r.Context())
	answerList(s, w, r, usages, err)
}

// queueStateDocument is the state of a queue and whether the request changed it.
type queueStateDocument struct {
	Name     string    `json:"name"`
	PausedAt time.Time `json:"paused_at,omitzero"`
	Changed  bool      `json:"changed"`
}

func (s *API) apiSetQueuePaused(pause bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		err := web.ReadJSON(w, r, &struct{}{})
		var since time.Time
		var changed bool
		if err == nil {
			since, changed, err = s.SetQueuePaused(r.Context(), name, auth.RequestOrigin(r, viaAPI), pause)
		}
		s.answer(w, r, http.StatusOK, queueStateDocument{name, since, changed}, err)
	}
}
