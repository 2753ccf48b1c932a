package api

import (
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/access"
)

func (s *API) sessionRoutes() []route.Route {
	if s.SessionKeeper == nil {
		return nil
	}
	end := post(s, "/api/v1/sessions/{session}/end", route.Operation{
		ID: "endSession", Summary: "End a session of a user",
		About: "Ends a session: one's own, or as an admin that of any user. The next request with it is refused.",
	}, func(c *call, _ nothing) (access.OpenSession, error) {
		return s.EndSession(c.Context(), c.PathValue("session"), s.Tokens != nil)
	})
	end.Write = route.Viewer
	return []route.Route{get(s, "/api/v1/sessions", route.Operation{
		ID: "listSessions", Summary: "List the sessions of users",
		About: "Returns the open sessions of users who logged in with a provider, the newest first, at most 500: all for an admin, and otherwise the caller's own.",
	}, func(r *http.Request, _ *web.Query) (web.List[access.OpenSession], error) {
		sessions, err := s.OpenSessions(r.Context(), s.Tokens != nil)
		return web.ListOf(sessions, ""), err
	}), end}
}
