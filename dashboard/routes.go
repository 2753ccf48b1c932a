package dashboard

import (
	"net/http"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// route is a path with its handlers for GET (and HEAD) and POST, and the scope that each
// needs.
type route struct {
	path        string
	get, post   http.HandlerFunc
	read, write access.Scope
	// gets and posts describe the operations for the OpenAPI document; nil means that the
	// operation is not part of the API.
	gets, posts *operation
	// action is the name of the POST in the audit log, if it does not follow from the path.
	action string
}

// The scopes of routes. A route without a scope rejects every request.
const (
	open     access.Scope = "open" // no token needed
	viewer                = access.Viewer
	operator              = access.Operator
	admin                 = access.Admin
)

// routes returns all routes of the node. The tests iterate over it.
func (s *server) routes() []route {
	routes := s.api.routes()
	if !s.noPages {
		routes = append(routes, s.pages.routes()...)
	}
	return routes
}

// docsPath is the page that shows the OpenAPI document.
const docsPath = "/api/docs"

func (s *pageServer) routes() []route {
	routes := []route{
		{path: "/{$}", get: s.page("overview"), read: viewer},
		{path: "/leaders", get: s.page("leaders"), read: viewer},
		{path: "/nodes", get: s.page("nodes"), read: viewer},
		{path: "/crons", get: s.page("crons"), read: viewer},
		{path: "/crons/{name}", get: s.page("cron"), read: viewer},
		{path: "/jobs", get: s.page("jobs"), read: viewer},
		{path: "/jobs/{id}", get: s.page("job"), read: viewer},
		{path: "/queues", get: s.page("queues"), read: viewer},
		{path: "/alerts", get: s.page("alerts"), read: viewer},
		{path: "/charts", get: s.page("charts"), read: viewer},
		{path: "/storage", get: s.page("storage"), read: viewer},
		{path: "/dead", get: s.page("dead"), read: viewer},
		{path: "/dead/{group}", get: s.page("deadgroup"), read: viewer},
		{path: "/events", get: s.events, read: viewer},
		{path: docsPath, get: s.apiDocs, read: viewer},
		{path: "/static/{file}", get: s.assets.ServeHTTP, read: open},
	}
	routes = append(routes, s.handOverPages()...)
	routes = append(routes, s.silencePages()...)
	routes = append(routes, s.loginRoutes()...)
	if s.Settings != nil {
		routes = append(routes, route{path: "/settings", get: s.page("settings"), read: viewer})
	}
	if s.operates() {
		routes = append(routes,
			route{path: "/crons/{name}/trigger", post: s.formTrigger, write: operator},
			route{path: "/crons/{name}/pause", post: s.formPause, write: operator},
			route{path: "/crons/{name}/resume", post: s.formResume, write: operator},
			route{path: "/crons/{name}/backfill", get: s.page("backfill"), post: s.formBackfill, read: operator, write: operator})
	}
	if s.JobOps != nil {
		for _, action := range jobstore.Actions {
			routes = append(routes,
				route{path: "/jobs/{id}/" + string(action), get: s.page(string(action)), post: s.formAct(action), read: operator, write: operator},
				route{path: "/bulk/jobs/" + string(action), get: s.page("bulk" + string(action)), post: s.formActOnAll(action), read: operator, write: operator})
		}
	}
	if s.Enqueuer != nil {
		routes = append(routes, route{path: "/enqueue", get: s.page("enqueue"), post: s.formEnqueue, read: operator, write: operator, action: enqueueAction})
	}
	if s.QueueOps != nil {
		routes = append(routes,
			route{path: "/queues/{name}/pause", post: s.formSetQueuePaused(true), write: operator},
			route{path: "/queues/{name}/resume", post: s.formSetQueuePaused(false), write: operator})
	}
	if s.DeadLetterOps != nil {
		for _, action := range deadActions {
			routes = append(routes, route{path: "/dead/{group}/" + string(action), get: s.page("dead" + string(action)), post: s.formDead(action), read: operator, write: operator})
		}
	}
	return routes
}

// loginRoutes returns the routes for login and logout.
func (s *pageServer) loginRoutes() []route {
	if s.Tokens == nil {
		return nil
	}
	return []route{
		{path: "/login", get: s.loginPage, read: open, post: s.formLogin, write: open},
		{path: "/logout", post: s.formLogout, write: open},
	}
}

func (s *clusterState) operates() bool { return s.CronOps != nil && s.CronRunner != nil }

// recordedAction returns the POST handler of a route, with its entry in the audit log. An
// open route has no callers to refuse beforehand, so it records no attempts: it records its
// action itself once that succeeds.
func (s *guard) recordedAction(r route) http.HandlerFunc {
	act := s.addressed(r.post)
	if r.write == open {
		return act
	}
	return s.audited(r, act)
}

// mux serves routes.
func (s *guard) mux(routes []route) *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range routes {
		if r.get != nil {
			mux.HandleFunc("GET "+r.path, s.admit(r, r.read, s.addressed(r.get))) // also matches HEAD
		}
		if r.post != nil {
			mux.HandleFunc("POST "+r.path, s.admit(r, r.write, s.recordedAction(r)))
		}
		mux.HandleFunc(r.path, s.admit(r, r.leastScope(), s.methodNotAllowed(r)))
	}
	mux.HandleFunc("/", s.admit(route{path: "/"}, viewer, s.notFound))
	return mux
}
