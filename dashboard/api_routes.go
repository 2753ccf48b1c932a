package dashboard

import (
	"net/http"
	"slices"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/compactstore"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// probeRoutes returns the routes for load balancers and Prometheus, and the documents under
// /cluster.
func (s *apiServer) probeRoutes() []route {
	role := text("role", "The role; by default scheduler.")
	routes := []route{
		{path: "/healthz", get: s.healthz, read: open, gets: answers[healthzDocument]("Check that the process answers")},
		{path: "/readyz", get: s.readyz, read: open, gets: answers[readiness]("Check whether the node can serve; 503 if it cannot").or(http.StatusServiceUnavailable)},
		{path: "/leader/{role}", get: s.leaderProbe, read: open, gets: answers[leaderFacts]("Answer 200 on the node that leads the role, and 503 on the others").sends(leaderNodeHeader, leaderTermHeader, leaderURLHeader).or(http.StatusServiceUnavailable)},
		{path: "/cluster/status", get: s.clusterStatus, read: viewer, gets: answers[statusDocument]("Describe the cluster with its nodes")},
		{path: "/cluster/leader", get: s.clusterLeader, read: viewer, gets: answers[leaderDocument]("Show the leader of a role; 503 while there is none", role)},
		{path: "/cluster/health", get: s.clusterHealth, read: viewer, gets: answers[healthDocument]("Show the health of the cluster; 503 if the database cannot be read").or(http.StatusServiceUnavailable)},
	}
	if s.Metrics != nil {
		routes = append(routes, route{path: "/metrics", get: s.Metrics.ServeHTTP, read: viewer, gets: texts("text/plain", "The node's metrics, for Prometheus").or(http.StatusInternalServerError)})
	}
	if s.ClusterMetrics != nil {
		routes = append(routes, route{path: "/metrics/cluster", get: s.clusterMetrics, read: viewer, gets: texts("text/plain", "The cluster's metrics, for Prometheus").or(http.StatusInternalServerError)})
	}
	return routes
}

// routes returns the routes of the probes and of the API.
func (s *apiServer) routes() []route {
	routes := append(s.probeRoutes(), s.apiRoutes()...)
	for i, r := range routes {
		if r.gets != nil && isRateLimited(r.path) {
			routes[i].get = checkParameters(r.gets, r.get)
		}
		if r.posts != nil {
			routes[i].post = s.idempotent(r, r.post)
		}
	}
	return routes
}

func (s *apiServer) apiRoutes() []route {
	document := answers[map[string]any]("This document")
	routes := []route{
		{path: "/api/openapi.json", get: s.apiOpenAPI, read: viewer, gets: document},
		{path: "/api/v1/openapi.json", get: s.apiOpenAPI, read: viewer, gets: document},
		{path: "/api/v1/leaders", get: s.apiLeaders, read: viewer, gets: lists[leaderItem]("List the roles with their leaders")},
		{path: "/api/v1/leaders/history", get: s.apiHistory, read: viewer, gets: lists[leaderstore.Tenure]("List tenures, newest first", with(paged, text("role", "Only of this role."))...)},
		{path: "/api/v1/nodes", get: s.apiNodes, read: viewer, gets: lists[nodestore.Node]("List the nodes")},
		{path: "/api/v1/queues", get: s.apiQueues, read: viewer, gets: lists[jobstore.Queue]("List the queues with their depth")},
		{path: "/api/v1/limits", get: s.apiLimits, read: viewer, gets: lists[jobstore.Usage]("List the limits in use")},
		{path: "/api/v1/events", get: s.apiEvents, read: viewer, gets: follows[eventstore.Event](lists[eventstore.Event]("List the events of the cluster, newest first", with(followed, several("type", "Only events of this type; may be repeated, or list several separated by commas."), text("role", "Only of this role."))...))},
		{path: "/api/v1/compaction", get: s.apiCompaction, read: viewer, gets: answers[compactstore.Status]("Show the passes of the log compactor and the sizes of the tables", limitParameter)},
		{path: "/api/v1/metrics/range", get: s.apiMetricsRange, read: viewer, gets: answers[rangeAnswer]("Read the recorded values of a metric", metricsParameters...)},
		{path: "/api/v1/alerts", get: s.apiAlerts, read: viewer, gets: lists[alerts.Status]("List the alerts, firing ones first")},
		{path: "/api/v1/alerts/history", get: s.apiAlertsHistory, read: viewer, gets: lists[alerts.Incident]("List incidents that are over, newest first", with(paged, alertParameter)...)},
		{path: "/api/v1/alerts/notifications", get: s.apiAlertNotifications, read: viewer, gets: lists[alerts.Notification]("List the notifications, newest first", with(paged, alertParameter)...)},
	}
	routes = append(routes, s.cronRoutes()...)
	routes = append(routes, s.jobRoutes()...)
	routes = append(routes, s.writeRoutes()...)
	routes = append(routes, s.handOverRoutes()...)
	routes = append(routes, s.silenceRoutes()...)
	routes = append(routes, s.fileRoutes()...)
	if s.Audit != nil {
		routes = append(routes, route{path: "/api/v1/audit", get: s.apiAudit, read: admin, gets: follows[access.AuditEntry](lists[access.AuditEntry]("List the actions and refusals in the audit log, newest first",
			with(followed, text("actor", "Only actions of this actor."), text("action", "Only this action, such as job.cancel."), among("outcome", "Only entries with this outcome.", access.AuditOutcomes()...))...))})
	}
	if s.Doctor != nil {
		routes = append(routes, route{path: "/api/v1/doctor", get: s.apiDoctor, read: viewer, gets: lists[Finding]("Check the database, the connection to it and the cluster")})
	}
	if s.Settings != nil {
		routes = append(routes, route{path: "/api/v1/settings", get: s.apiSettings, read: viewer, gets: answers[map[string]any]("Show the node's configuration, with secrets redacted")})
	}
	return routes
}

var metricsParameters = []parameter{
	{name: "metric", kind: "string", about: "The metric's name.", required: true},
	instant("from", "By default an hour before to."), instant("to", "By default now."),
	text("step", "The width of the windows: 1m, 5m or 1h; by default what fits the range."),
	{name: "label", kind: "string", about: "label.NAME: only series whose label NAME has this value.", family: true},
}

func (s *apiServer) cronRoutes() []route {
	return []route{
		{path: "/api/v1/crons", get: s.apiCrons, read: viewer, gets: lists[cronItem]("List the crons by name", with(paged,
			text("q", "Only crons with this text in their name or job."), among("is", "Only crons in this state.", cronFilters...))...)},
		{path: "/api/v1/crons/{name}", get: s.apiCron, read: viewer, gets: answers[cronDocument]("Show a cron with its next ticks")},
		{path: "/api/v1/crons/{name}/next", get: s.apiNext, read: viewer, gets: lists[explain.Coming]("List the next ticks of a cron",
			nextParameters...)},
		{path: "/api/v1/next", get: s.apiNextOfSchedule, read: viewer, gets: answers[foreseen]("List the next ticks of an expression",
			with(nextParameters, parameter{name: "schedule", kind: "string", about: "An expression such as */5 * * * *.", required: true}, text("timezone", "Its time zone; by default UTC."))...)},
		{path: "/api/v1/crons/{name}/ticks", get: s.apiTicks, read: viewer, gets: lists[cronstore.Tick]("List a cron's ticks, newest first", with(paged, instant("before", "Only those before this instant."))...)},
		{path: "/api/v1/crons/{name}/ticks/{tick}", get: s.apiTick, read: viewer, gets: answers[explain.Explanation]("Explain the verdict of a tick")},
	}
}

// enqueueAction is the name of adding a job in the audit log.
const enqueueAction = "job.enqueue"

// jobFilters are the filter parameters of lists of jobs.
var jobFilters = []parameter{
	among("state", "Only jobs in this state.", jobStates...), text("kind", "Only jobs of this kind."),
	text("queue", "Only jobs of this queue."), text("cron", "Only runs of this cron."),
}

// deadFilters are the filter parameters of lists of dead letters.
var deadFilters = []parameter{
	text("kind", "Only of this kind."), text("error", "Only dead letters with this text in their error."),
	text("older_than", "Only jobs that died longer ago than this, such as 6h or 2d."), text("newer_than", "Only jobs that died more recently than this, such as 6h or 2d."),
}

// argsParameter is a parameter of lists of jobs.
var argsParameter = flag("args", "Include the arguments of each job. A page ends early once it has 1 MiB of them.")

func (s *apiServer) jobRoutes() []route {
	jobs := route{path: "/api/v1/jobs", get: s.apiJobs, read: viewer, gets: lists[jobstore.Job]("List the jobs, newest first", with(pagedByID, append(slices.Clone(jobFilters), argsParameter)...)...)}
	if s.Enqueuer != nil {
		jobs.post, jobs.write, jobs.action = s.apiEnqueue, operator, enqueueAction
		jobs.posts = takes[enqueueAsk, jobstore.Enqueued](http.StatusCreated, "Add a job; 200 if an equal one exists").or(http.StatusOK).sends(locationHeader)
	}
	routes := []route{
		jobs,
		{path: "/api/v1/job-counts", get: s.apiCounts, read: viewer, gets: lists[jobstore.Count]("Count the jobs by queue and state; if there are many, the counts are some seconds old")},
		{path: "/api/v1/jobs/{id}", get: s.apiJob, read: viewer, gets: answers[jobstore.Job]("Show a job with its attempts")},
		{path: "/api/v1/jobs/{id}/logs", get: s.apiLogs, read: viewer, gets: follows[jobstore.LogChunk](lists[jobstore.LogChunk]("Read the output of an attempt",
			upTo("attempt", "The attempt; by default the newest.", maxAttempt), upTo("after", "Only chunks after this one.", maxChunk), cursorParameter,
			flag("follow", "Stream chunks until the attempt ends, one per line (application/x-ndjson).")))},
		{path: "/api/v1/jobs/{id}/explain", get: s.apiExplain, read: viewer, gets: answers[explain.Placement]("Explain where a job will run, why it waits, or which nodes ran it")},
		{path: "/api/v1/dead", get: s.apiDead, read: viewer, gets: lists[jobstore.DeadGroup]("List the dead letters by kind and error", deadFilters...)},
		{path: "/api/v1/dead-letters", get: s.apiDeadJobs, read: viewer, gets: lists[jobstore.DeadLetter]("List the dead letters, newest first", with(pagedByID, deadFilters...)...)},
		{path: "/api/v1/dead/{group}", get: s.apiDeadJobs, read: viewer, gets: lists[jobstore.DeadLetter]("List the dead letters of a group, newest first", with(pagedByID, deadFilters...)...)},
	}
	if s.Enqueuer != nil {
		routes = append(routes,
			route{path: "/api/v1/kinds", get: s.apiKinds, read: viewer, gets: lists[kindItem]("List the kinds of jobs that can be enqueued")},
			route{path: "/api/v1/kinds/{kind}", get: s.apiKind, read: viewer, gets: answers[kindDocument]("Describe the arguments of a kind")})
	}
	return routes
}

// writeRoutes returns the API routes that change something and that the server supports.
func (s *apiServer) writeRoutes() (routes []route) {
	if s.operates() {
		routes = append(routes,
			route{path: "/api/v1/crons/{name}/trigger", post: s.apiTrigger, write: operator, posts: takes[triggerAsk, cronstore.Tick](http.StatusCreated, "Run a cron now, or a tick of it that did not run").sends(locationHeader)},
			route{path: "/api/v1/crons/{name}/pause", post: s.apiPause, write: operator, posts: does[heldDocument](http.StatusOK, "Pause a cron")},
			route{path: "/api/v1/crons/{name}/resume", post: s.apiResume, write: operator, posts: does[heldDocument](http.StatusOK, "Resume a cron")},
			route{path: "/api/v1/crons/{name}/backfill", post: s.apiBackfill, write: operator, posts: takes[backfillAsk, backfillDocument](http.StatusOK, "Run the ticks of a time range that have no job")})
	}
	if s.JobOps != nil {
		for _, action := range jobstore.Actions {
			routes = append(routes,
				route{path: "/api/v1/jobs/{id}/" + string(action), post: s.apiAct(action), write: operator, posts: does[jobstore.Change](http.StatusOK, capital(string(action))+" a job")},
				route{path: "/api/v1/bulk/jobs/" + string(action), post: s.apiActOnAll(action), write: operator, posts: takes[bulkAsk, bulkDocument](http.StatusOK, capital(string(action))+" all jobs that match a filter")})
		}
	}
	if s.QueueOps != nil {
		routes = append(routes,
			route{path: "/api/v1/queues/{name}/pause", post: s.apiSetQueuePaused(true), write: operator, posts: does[queueStateDocument](http.StatusOK, "Pause a queue")},
			route{path: "/api/v1/queues/{name}/resume", post: s.apiSetQueuePaused(false), write: operator, posts: does[queueStateDocument](http.StatusOK, "Resume a queue")})
	}
	if s.DeadLetterOps != nil {
		for _, action := range deadActions {
			routes = append(routes, route{path: "/api/v1/bulk/dead/" + string(action), post: s.apiActOnDead(action), write: operator, posts: takes[deadAsk, bulkDocument](http.StatusOK, capital(string(action))+" all dead letters that match a filter")})
		}
	}
	return routes
}
