package dashboard

import (
	"net/http"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/tokenstore"
)

// route is a path with what it answers to GET and HEAD, to POST, or to both, and
// the scope that each needs.
type route struct {
	path        string
	get, post   http.HandlerFunc
	read, write tokenstore.Scope
	// gets and posts describe what programs get and post; nil: nothing.
	gets, posts *operation
	// action is what the audit log calls the POST, where the path does not say it.
	action string
}

// The scopes, as the table of routes names them. A route that names none answers
// nobody.
const (
	open     tokenstore.Scope = "open" // to everybody
	viewer                    = tokenstore.Viewer
	operator                  = tokenstore.Operator
	admin                     = tokenstore.Admin
)

// routes is every path that the node answers; the tests walk it.
func (s *server) routes() []route {
	routes := append(s.probeRoutes(), s.apiRoutes()...)
	if !s.NoPages {
		routes = append(routes, s.pageRoutes()...)
		routes = append(routes, s.loginRoutes()...)
	}
	return routes
}

// docsPath is the API's document as people read it.
const docsPath = "/api/docs"

func (s *server) pageRoutes() []route {
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
		{path: docsPath, get: s.withDescription(s.apiDocs), read: viewer},
		{path: "/static/{file}", get: s.assets.ServeHTTP, read: open},
	}
	routes = append(routes, s.movePages()...)
	routes = append(routes, s.silencePages()...)
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
	if s.Changer != nil {
		for _, action := range jobstore.Actions {
			routes = append(routes,
				route{path: "/jobs/{id}/" + string(action), get: s.page(string(action)), post: s.formAct(action), read: operator, write: operator},
				route{path: "/bulk/jobs/" + string(action), get: s.page("bulk" + string(action)), post: s.formActOnAll(action), read: operator, write: operator})
		}
	}
	if s.Enqueuer != nil {
		routes = append(routes, route{path: "/enqueue", get: s.page("enqueue"), post: s.formEnqueue, read: operator, write: operator, action: enqueueAction})
	}
	if s.Stopper != nil {
		routes = append(routes,
			route{path: "/queues/{name}/pause", post: s.formTurnQueue(true), write: operator},
			route{path: "/queues/{name}/resume", post: s.formTurnQueue(false), write: operator})
	}
	if s.DeadChanger != nil {
		for _, action := range deadActions {
			routes = append(routes, route{path: "/dead/{group}/" + string(action), get: s.page("dead" + string(action)), post: s.formDead(action), read: operator, write: operator})
		}
	}
	return routes
}

// loginRoutes let people in, and out again.
func (s *server) loginRoutes() []route {
	if s.Tokens == nil {
		return nil
	}
	return []route{
		{path: "/login", get: s.loginPage, read: open, post: s.formLogin, write: open},
		{path: "/logout", post: s.formLogout, write: open},
	}
}

func (s *server) operates() bool { return s.Holder != nil && s.Runner != nil }

// recordedAction is the POST of a route, with its entry in the audit log. One that is
// open to everybody records what it does itself: who refuses nobody beforehand records
// no attempt.
func (s *server) recordedAction(r route) http.HandlerFunc {
	act := s.addressed(s.once(r, r.post))
	if r.write == open {
		return act
	}
	return s.audited(r, act)
}

func (s *server) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		if r.get != nil {
			get := r.get
			if r.gets != nil && isPaced(r.path) {
				get = asked(r.gets, get)
			}
			mux.HandleFunc("GET "+r.path, s.admit(r, r.read, s.addressed(get))) // and HEAD
		}
		if r.post != nil {
			mux.HandleFunc("POST "+r.path, s.admit(r, r.write, s.recordedAction(r)))
		}
		mux.HandleFunc(r.path, s.admit(r, r.least(), s.methodNotAllowed(r)))
	}
	mux.HandleFunc("/", s.admit(route{path: "/"}, viewer, s.notFound))
	return mux
}
