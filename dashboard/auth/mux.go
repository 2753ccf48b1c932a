package auth

import (
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/route"
)

// recordedAction returns the POST handler of a route, with its entry in the audit log. An
// open route has no callers to refuse beforehand, so it records no attempts: it records its
// action itself once that succeeds.
func (s *Guard) recordedAction(r route.Route) http.HandlerFunc {
	act := s.addressed(r.Post)
	if r.Write == route.Open {
		return act
	}
	return s.audited(r, act)
}

// Mux serves routes.
func (s *Guard) Mux(routes []route.Route) *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range routes {
		if r.Get != nil {
			mux.HandleFunc("GET "+r.Path, s.admit(r, r.Read, s.addressed(r.Get))) // also matches HEAD
		}
		if r.Post != nil {
			mux.HandleFunc("POST "+r.Path, s.admit(r, r.Write, s.recordedAction(r)))
		}
		mux.HandleFunc(r.Path, s.admit(r, r.LeastScope(), s.methodNotAllowed(r)))
	}
	mux.HandleFunc("/", s.admit(route.Route{Path: "/"}, route.Viewer, s.notFound))
	return mux
}
