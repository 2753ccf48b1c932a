package pages

import (
	"slices"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

// Routes returns the routes of the pages, their forms and their streams.
func (s *Pages) Routes() []route.Route {
	routes := []route.Route{
		{Path: "/{$}", Get: s.page("overview"), Read: route.Viewer},
		{Path: "/leaders", Get: s.page("leaders"), Read: route.Viewer},
		{Path: "/leaders/{role}/terms/{term}", Get: s.page("incident"), Read: route.Viewer},
		{Path: "/nodes", Get: s.page("nodes"), Read: route.Viewer},
		{Path: "/nodes/{node}", Get: s.page("nodepage"), Read: route.Viewer},
		{Path: "/crons", Get: s.page("crons"), Read: route.Viewer},
		{Path: "/crons/{name}", Get: s.page("cron"), Read: route.Viewer},
		{Path: "/jobs", Get: s.page("jobs"), Read: route.Viewer},
		{Path: "/jobs/{id}", Get: s.page("job"), Read: route.Viewer},
		{Path: "/activity", Get: s.page("activity"), Read: route.Viewer},
		{Path: "/queues", Get: s.page("queues"), Read: route.Viewer},
		{Path: "/queues/{name}", Get: s.page("queue"), Read: route.Viewer},
		{Path: "/alerts", Get: s.page("alerts"), Read: route.Viewer},
		{Path: "/charts", Get: s.page("charts"), Read: route.Viewer},
		{Path: "/storage", Get: s.page("storage"), Read: route.Viewer},
		{Path: "/dead", Get: s.page("dead"), Read: route.Viewer},
		{Path: "/dead/{group}", Get: s.page("deadgroup"), Read: route.Viewer},
		{Path: "/events", Get: s.events, Read: route.Viewer},
		{Path: viewsPath, Post: s.formViews, Write: route.Open}, // it changes the reader's browser alone
		{Path: "/keys", Get: s.page("keys"), Read: route.Viewer},
		{Path: web.DocsPath, Get: s.apiDocs, Read: route.Viewer},
		{Path: "/static/{file}", Get: s.Assets.ServeHTTP, Read: route.Open},
	}
	routes = append(routes, s.handOverPages()...)
	routes = append(routes, s.configRoutes()...)
	if s.Doctor != nil {
		routes = append(routes, route.Route{Path: "/doctor", Get: s.page("doctor"), Read: route.Viewer})
	}
	routes = append(routes, s.silencePages()...)
	routes = append(routes, s.searchPages()...)
	routes = append(routes, slices.Concat(s.tokenPages(), s.sessionPages())...)
	routes = append(routes, s.applyRoutes()...)
	routes = append(routes, s.loginRoutes()...)
	if s.Settings != nil {
		routes = append(routes, route.Route{Path: "/settings", Get: s.page("settings"), Read: route.Viewer})
	}
	return append(routes, s.operatorRoutes()...)
}

// operatorRoutes are the forms that change crons, jobs, queues and dead letters.
func (s *Pages) operatorRoutes() (routes []route.Route) {
	if s.Operates() {
		routes = append(s.holdRoutes(),
			route.Route{Path: "/crons/{name}/trigger", Get: s.page("trigger"), Post: s.formTrigger, Read: route.Operator, Write: route.Operator},
			route.Route{Path: "/crons/{name}/pause", Post: s.formPause, Write: route.Operator},
			route.Route{Path: "/crons/{name}/resume", Post: s.formResume, Write: route.Operator},
			route.Route{Path: "/crons/{name}/backfill", Get: s.page("backfill"), Post: s.formBackfill, Read: route.Operator, Write: route.Operator})
	}
	if s.JobOps != nil {
		for _, action := range jobstore.Actions {
			routes = append(routes,
				route.Route{Path: "/jobs/{id}/" + string(action), Get: s.page(string(action)), Post: s.formAct(action), Read: route.Operator, Write: route.Operator},
				route.Route{Path: "/bulk/jobs/" + string(action), Get: s.page("bulk" + string(action)), Post: s.formActOnAll(action), Read: route.Operator, Write: route.Operator})
		}
	}
	if s.Enqueuer != nil {
		routes = append(routes, route.Route{Path: "/enqueue", Get: s.page("enqueue"), Post: s.formEnqueue, Read: route.Operator, Write: route.Operator, Action: cluster.EnqueueAction})
	}
	if s.QueueOps != nil {
		routes = append(routes,
			route.Route{Path: "/queues/{name}/pause", Post: s.formSetQueuePaused(true), Write: route.Operator},
			route.Route{Path: "/queues/{name}/resume", Post: s.formSetQueuePaused(false), Write: route.Operator})
	}
	if s.DeadLetterOps != nil {
		for _, action := range cluster.DeadActions {
			routes = append(routes, route.Route{Path: "/bulk/dead/" + string(action), Get: s.page("bulkdead" + string(action)), Post: s.formBulkDead(action), Read: route.Operator, Write: route.Operator},
				route.Route{Path: "/dead/{group}/" + string(action), Get: s.page("dead" + string(action)), Post: s.formDead(action), Read: route.Operator, Write: route.Operator})
		}
	}
	return routes
}

// loginRoutes returns the routes for login and logout.
func (s *Pages) loginRoutes() []route.Route {
	if s.Tokens == nil {
		return nil
	}
	routes := []route.Route{
		{Path: "/login", Get: s.loginPage, Read: route.Open, Post: s.formLogin, Write: route.Open},
		{Path: "/logout", Post: s.formLogout, Write: route.Open},
	}
	if s.Users.Provider == nil {
		return routes
	}
	return append(routes,
		route.Route{Path: userLoginPath, Get: s.beginLogin, Read: route.Open},
		route.Route{Path: callbackPath, Get: s.completeLogin, Read: route.Open},
		route.Route{Path: endedPath, Post: s.endSessions, Write: route.Open},
	)
}
