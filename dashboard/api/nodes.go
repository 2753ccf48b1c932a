package api

import (
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/web"
)

func (s *API) apiNodes(w http.ResponseWriter, r *http.Request) {
	nodes, err := s.Source.Nodes.List(r.Context())
	if err != nil {
		s.AnswerDatabaseError(w, r, err)
		return
	}
	web.WriteJSON(w, http.StatusOK, web.ListOf(nodes, ""))
}

func (s *API) apiDrain(drain bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := web.ReadJSON(w, r, &struct{}{}); err != nil {
			s.AnswerError(w, r, err)
			return
		}
		done, err := s.Drain(r.Context(), r.PathValue("node"), auth.RequestOrigin(r, viaAPI), drain)
		if err != nil {
			s.AnswerError(w, r, err)
			return
		}
		web.WriteJSON(w, http.StatusAccepted, done)
	}
}
