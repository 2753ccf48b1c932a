package api

import (
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/web"
)

func (s *API) apiSettings(w http.ResponseWriter, _ *http.Request) {
	web.WriteJSON(w, http.StatusOK, s.Settings())
}
