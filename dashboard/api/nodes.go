package api

import (
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/web"
)

func (s *API) apiNodes(w http.ResponseWriter, r *http.Request) {
	nodes, err := s.Source.Nodes.List(r.Context())
	answerList(s, w, r, nodes, err)
}

func (s *API) apiDrain(drain bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := web.ReadJSON(w, r, &struct{}{}); err != nil {
			s.AnswerError(w, r, err)
			return
		}
		done, err := s.Drain(r.Context(), r.PathValue("node"), auth.RequestOrigin(r, viaAPI), drain)
		s.answer(w, r, http.StatusAccepted, done, err)
	}
}
