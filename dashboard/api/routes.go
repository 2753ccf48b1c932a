package api

import (
	"net/http"
	"slices"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// probeRoutes returns the routes for load balancers and Prometheus, and the documents under
// /cluster.
func (s *API) probeRoutes() []route.Route {
	role := route.Text("role", "The role; by default scheduler.")
	routes := []route.Route{
		{Path: "/healthz", Get: s.healthz, Read: route.Open, Gets: route.Answers[healthzDocument]("Check that the process answers")},
		{Path: "/readyz", Get: s.readyz, Read: route.Open, Gets: route.Answers[Readiness]("Check whether the node can serve; 503 if it cannot").Or(http.StatusServiceUnavailable)},
		{Path: "/leader/{role}", Get: s.leaderProbe, Read: route.Open, Gets: route.Answers[LeaderFacts]("Answer 200 on the node that leads the role, and 503 on the others").Sends(route.LeaderNodeHeader, route.LeaderTermHeader, route.LeaderURLHeader).Or(http.StatusServiceUnavailable)},
		{Path: "/cluster/status", Get: s.clusterStatus, Read: route.Viewer, Gets: route.Answers[StatusDocument]("Describe the cluster with its nodes")},
		{Path: "/cluster/leader", Get: s.clusterLeader, Read: route.Viewer, Gets: route.Answers[LeaderDocument]("Show the leader of a role; 503 while there is none", role)},
		{Path: "/cluster/health", Get: s.clusterHealth, Read: route.Viewer, Gets: route.Answers[HealthDocument]("Show the health of the cluster; 503 if the database cannot be read").Or(http.StatusServiceUnavailable)},
	}
	if s.Metrics != nil {
		routes = append(routes, route.Route{Path: "/metrics", Get: s.Metrics.ServeHTTP, Read: route.Viewer, Gets: route.Texts("text/plain", "The node's metrics, for Prometheus").Or(http.StatusInternalServerError)})
	}
	if s.ClusterMetrics != nil {
		routes = append(routes, route.Route{Path: "/metrics/cluster", Get: s.clusterMetrics, Read: route.Viewer, Gets: route.Texts("text/plain", "The cluster's metrics, for Prometheus").Or(http.StatusInternalServerError)})
	}
	return routes
}

// Routes returns the routes of the probes and of the API.
func (s *API) Routes() []route.Route {
	routes := append(s.probeRoutes(), s.apiRoutes()...)
	for i, r := range routes {
		if r.Gets != nil && route.IsRateLimited(r.Path) {
			routes[i].Get = route.CheckParameters(r.Gets, r.Get)
		}
		if r.Posts != nil {
			routes[i].Post = s.idempotent(r, r.Post)
		}
	}
	return routes
}

func (s *API) apiRoutes() []route.Route {
	document := route.Answers[map[string]any]("This document")
	routes := []route.Route{
		{Path: "/api/openapi.json", Get: s.apiOpenAPI, Read: route.Viewer, Gets: document},
		{Path: "/api/v1/openapi.json", Get: s.apiOpenAPI, Read: route.Viewer, Gets: document},
		{Path: "/api/v1/leaders", Get: s.apiLeaders, Read: route.Viewer, Gets: route.Lists[LeaderItem]("List the roles with their leaders")},
		{Path: "/api/v1/leaders/history", Get: s.apiHistory, Read: route.Viewer, Gets: route.Lists[leaderstore.Tenure]("List tenures, newest first", route.With(route.Paged, route.Text("role", "Only of this role."))...)},
		{Path: "/api/v1/nodes", Get: s.apiNodes, Read: route.Viewer, Gets: route.Lists[nodestore.Node]("List the nodes")},
		{Path: "/api/v1/queues", Get: s.apiQueues, Read: route.Viewer, Gets: route.Lists[jobstore.Queue]("List the queues with their depth")},
		{Path: "/api/v1/limits", Get: s.apiLimits, Read: route.Viewer, Gets: route.Lists[jobstore.Usage]("List the limits in use")},
		{Path: "/api/v1/events", Get: s.apiEvents, Read: route.Viewer, Gets: route.Follows[eventstore.Event](route.Lists[eventstore.Event]("List the events of the cluster, newest first", route.With(route.Followed, route.Several("type", "Only events of this type; may be repeated, or list several separated by commas."), route.Text("role", "Only of this role."))...))},
		{Path: "/api/v1/compaction", Get: s.apiCompaction, Read: route.Viewer, Gets: route.Answers[compactor.Status]("Show the passes of the log compactor and the sizes of the tables", route.LimitParameter)},
		{Path: "/api/v1/metrics/range", Get: s.apiMetricsRange, Read: route.Viewer, Gets: route.Answers[rangeAnswer]("Read the recorded values of a metric", metricsParameters...)},
		{Path: "/api/v1/alerts", Get: s.apiAlerts, Read: route.Viewer, Gets: route.Lists[alerts.Status]("List the alerts, firing ones first")},
		{Path: "/api/v1/alerts/history", Get: s.apiAlertsHistory, Read: route.Viewer, Gets: route.Lists[alerts.Incident]("List incidents that are over, newest first", route.With(route.Paged, route.AlertParameter)...)},
		{Path: "/api/v1/alerts/notifications", Get: s.apiAlertNotifications, Read: route.Viewer, Gets: route.Lists[alerts.Notification]("List the notifications, newest first", route.With(route.Paged, route.AlertParameter)...)},
	}
	routes = append(routes, s.cronRoutes()...)
	routes = append(routes, s.jobRoutes()...)
	routes = append(routes, s.writeRoutes()...)
	routes = append(routes, s.handOverRoutes()...)
	routes = append(routes, s.silenceRoutes()...)
	routes = append(routes, s.fileRoutes()...)
	if s.Audit != nil {
		routes = append(routes, route.Route{Path: "/api/v1/audit", Get: s.apiAudit, Read: route.Admin, Gets: route.Follows[access.AuditEntry](route.Lists[access.AuditEntry]("List the actions and refusals in the audit log, newest first",
			route.With(route.Followed, route.Text("actor", "Only actions of this actor."), route.Text("action", "Only this action, such as job.cancel."), route.Among("outcome", "Only entries with this outcome.", access.AuditOutcomes()...))...))})
	}
	if s.Doctor != nil {
		routes = append(routes, route.Route{Path: "/api/v1/doctor", Get: s.apiDoctor, Read: route.Viewer, Gets: route.Lists[Finding]("Check the database, the connection to it and the cluster")})
	}
	if s.Settings != nil {
		routes = append(routes, route.Route{Path: "/api/v1/settings", Get: s.apiSettings, Read: route.Viewer, Gets: route.Answers[map[string]any]("Show the node's configuration, with secrets redacted")})
	}
	return routes
}

var metricsParameters = []route.Parameter{
	{Name: "metric", Kind: "string", About: "The metric's name.", Required: true},
	route.Instant("from", "By default an hour before to."), route.Instant("to", "By default now."),
	route.Text("step", "The width of the windows: 1m, 5m or 1h; by default what fits the range."),
	{Name: "label", Kind: "string", About: "label.NAME: only series whose label NAME has this value.", Family: true},
}

func (s *API) cronRoutes() []route.Route {
	return []route.Route{
		{Path: "/api/v1/crons", Get: s.apiCrons, Read: route.Viewer, Gets: route.Lists[CronItem]("List the crons by name", route.With(route.Paged,
			route.Text("q", "Only crons with this text in their name or job."), route.Among("is", "Only crons in this state.", cluster.CronFilters...))...)},
		{Path: "/api/v1/crons/{name}", Get: s.apiCron, Read: route.Viewer, Gets: route.Answers[CronDocument]("Show a cron with its next ticks")},
		{Path: "/api/v1/crons/{name}/next", Get: s.apiNext, Read: route.Viewer, Gets: route.Lists[explain.Coming]("List the next ticks of a cron",
			nextParameters...)},
		{Path: "/api/v1/next", Get: s.apiNextOfSchedule, Read: route.Viewer, Gets: route.Answers[foreseen]("List the next ticks of an expression",
			route.With(nextParameters, route.Parameter{Name: "schedule", Kind: "string", About: "An expression such as */5 * * * *.", Required: true}, route.Text("timezone", "Its time zone; by default UTC."))...)},
		{Path: "/api/v1/crons/{name}/ticks", Get: s.apiTicks, Read: route.Viewer, Gets: route.Lists[cronstore.Tick]("List a cron's ticks, newest first", route.With(route.Paged, route.Instant("before", "Only those before this instant."))...)},
		{Path: "/api/v1/crons/{name}/ticks/{tick}", Get: s.apiTick, Read: route.Viewer, Gets: route.Answers[explain.Explanation]("Explain the verdict of a tick")},
	}
}

// jobFilters are the filter parameters of lists of jobs.
var jobFilters = []route.Parameter{
	route.Among("state", "Only jobs in this state.", cluster.JobStates...), route.Text("kind", "Only jobs of this kind."),
	route.Text("queue", "Only jobs of this queue."), route.Text("cron", "Only runs of this cron."),
}

// deadFilters are the filter parameters of lists of dead letters.
var deadFilters = []route.Parameter{
	route.Text("kind", "Only of this kind."), route.Text("error", "Only dead letters with this text in their error."),
	route.Text("older_than", "Only jobs that died longer ago than this, such as 6h or 2d."), route.Text("newer_than", "Only jobs that died more recently than this, such as 6h or 2d."),
}

// argsParameter is a parameter of lists of jobs.
var argsParameter = route.Flag("args", "Include the arguments of each job. A page ends early once it has 1 MiB of them.")

func (s *API) jobRoutes() []route.Route {
	jobs := route.Route{Path: "/api/v1/jobs", Get: s.apiJobs, Read: route.Viewer, Gets: route.Lists[jobstore.Job]("List the jobs, newest first", route.With(route.PagedByID, append(slices.Clone(jobFilters), argsParameter)...)...)}
	if s.Enqueuer != nil {
		jobs.Post, jobs.Write, jobs.Action = s.apiEnqueue, route.Operator, cluster.EnqueueAction
		jobs.Posts = route.Takes[enqueueAsk, jobstore.Enqueued](http.StatusCreated, "Add a job; 200 if an equal one exists").Or(http.StatusOK).Sends(route.LocationHeader)
	}
	routes := []route.Route{
		jobs,
		{Path: "/api/v1/job-counts", Get: s.apiCounts, Read: route.Viewer, Gets: route.Lists[jobstore.Count]("Count the jobs by queue and state; if there are many, the counts are some seconds old")},
		{Path: "/api/v1/jobs/{id}", Get: s.apiJob, Read: route.Viewer, Gets: route.Answers[jobstore.Job]("Show a job with its attempts")},
		{Path: "/api/v1/jobs/{id}/logs", Get: s.apiLogs, Read: route.Viewer, Gets: route.Follows[jobstore.LogChunk](route.Lists[jobstore.LogChunk]("Read the output of an attempt",
			route.UpTo("attempt", "The attempt; by default the newest.", cluster.MaxAttempt), route.UpTo("after", "Only chunks after this one.", cluster.MaxChunk), route.CursorParameter,
			route.Flag("follow", "Stream chunks until the attempt ends, one per line (application/x-ndjson).")))},
		{Path: "/api/v1/jobs/{id}/explain", Get: s.apiExplain, Read: route.Viewer, Gets: route.Answers[explain.Placement]("Explain where a job will run, why it waits, or which nodes ran it")},
		{Path: "/api/v1/dead", Get: s.apiDead, Read: route.Viewer, Gets: route.Lists[jobstore.DeadGroup]("List the dead letters by kind and error", deadFilters...)},
		{Path: "/api/v1/dead-letters", Get: s.apiDeadJobs, Read: route.Viewer, Gets: route.Lists[jobstore.DeadLetter]("List the dead letters, newest first", route.With(route.PagedByID, deadFilters...)...)},
		{Path: "/api/v1/dead/{group}", Get: s.apiDeadJobs, Read: route.Viewer, Gets: route.Lists[jobstore.DeadLetter]("List the dead letters of a group, newest first", route.With(route.PagedByID, deadFilters...)...)},
	}
	if s.Enqueuer != nil {
		routes = append(routes,
			route.Route{Path: "/api/v1/kinds", Get: s.apiKinds, Read: route.Viewer, Gets: route.Lists[KindItem]("List the kinds of jobs that can be enqueued")},
			route.Route{Path: "/api/v1/kinds/{kind}", Get: s.apiKind, Read: route.Viewer, Gets: route.Answers[KindDocument]("Describe the arguments of a kind")})
	}
	return routes
}

// writeRoutes returns the API routes that change something and that the server supports.
func (s *API) writeRoutes() (routes []route.Route) {
	if s.Operates() {
		routes = append(routes,
			route.Route{Path: "/api/v1/crons/{name}/trigger", Post: s.apiTrigger, Write: route.Operator, Posts: route.Takes[triggerAsk, cronstore.Tick](http.StatusCreated, "Run a cron now, or a tick of it that did not run").Sends(route.LocationHeader)},
			route.Route{Path: "/api/v1/crons/{name}/pause", Post: s.apiPause, Write: route.Operator, Posts: route.Does[heldDocument](http.StatusOK, "Pause a cron")},
			route.Route{Path: "/api/v1/crons/{name}/resume", Post: s.apiResume, Write: route.Operator, Posts: route.Does[heldDocument](http.StatusOK, "Resume a cron")},
			route.Route{Path: "/api/v1/crons/{name}/backfill", Post: s.apiBackfill, Write: route.Operator, Posts: route.Takes[backfillAsk, backfillDocument](http.StatusOK, "Run the ticks of a time range that have no job")})
	}
	if s.JobOps != nil {
		for _, action := range jobstore.Actions {
			routes = append(routes,
				route.Route{Path: "/api/v1/jobs/{id}/" + string(action), Post: s.apiAct(action), Write: route.Operator, Posts: route.Does[jobstore.Change](http.StatusOK, format.Capital(string(action))+" a job")},
				route.Route{Path: "/api/v1/bulk/jobs/" + string(action), Post: s.apiActOnAll(action), Write: route.Operator, Posts: route.Takes[bulkAsk, cluster.BulkDocument](http.StatusOK, format.Capital(string(action))+" all jobs that match a filter")})
		}
	}
	if s.QueueOps != nil {
		routes = append(routes,
			route.Route{Path: "/api/v1/queues/{name}/pause", Post: s.apiSetQueuePaused(true), Write: route.Operator, Posts: route.Does[queueStateDocument](http.StatusOK, "Pause a queue")},
			route.Route{Path: "/api/v1/queues/{name}/resume", Post: s.apiSetQueuePaused(false), Write: route.Operator, Posts: route.Does[queueStateDocument](http.StatusOK, "Resume a queue")})
	}
	if s.DeadLetterOps != nil {
		for _, action := range cluster.DeadActions {
			routes = append(routes, route.Route{Path: "/api/v1/bulk/dead/" + string(action), Post: s.apiActOnDead(action), Write: route.Operator, Posts: route.Takes[deadAsk, cluster.BulkDocument](http.StatusOK, format.Capital(string(action))+" all dead letters that match a filter")})
		}
	}
	return routes
}
