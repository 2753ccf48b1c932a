package dashboard

import (
	"net/http"
	"slices"

	"github.com/forge-scheduler/forge/internal/alertstore"
	"github.com/forge-scheduler/forge/internal/auditstore"
	"github.com/forge-scheduler/forge/internal/compactstore"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/outbox"
	"github.com/forge-scheduler/forge/internal/queuestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// probeRoutes are for load balancers and for Prometheus, and the documents of the
// cluster.
func (s *server) probeRoutes() []route {
	role := text("role", "The role; the scheduler's without.")
	routes := []route{
		{path: "/healthz", get: s.healthz, read: open, gets: answers[healthzDocument]("Say that the process answers")},
		{path: "/readyz", get: s.readyz, read: open, gets: answers[readiness]("Say whether the node can serve; 503: not now").or(http.StatusServiceUnavailable)},
		{path: "/leader/{role}", get: s.leaderProbe, read: open, gets: answers[leaderFacts]("Answer 200 on the node that leads the role, and 503 on the others").sends(leaderNodeHeader, leaderTermHeader, leaderURLHeader).or(http.StatusServiceUnavailable)},
		{path: "/cluster/status", get: s.clusterStatus, read: viewer, gets: answers[statusDocument]("Describe the cluster with its nodes")},
		{path: "/cluster/leader", get: s.clusterLeader, read: viewer, gets: answers[leaderDocument]("Name the leader of a role; 503 while there is none", role)},
		{path: "/cluster/health", get: s.clusterHealth, read: viewer, gets: answers[healthDocument]("Judge the cluster; 503: the database cannot be read").or(http.StatusServiceUnavailable)},
	}
	if s.Metrics != nil {
		routes = append(routes, route{path: "/metrics", get: s.Metrics.ServeHTTP, read: viewer, gets: texts("text/plain", "The node's metrics, for Prometheus").or(http.StatusInternalServerError)})
	}
	if s.ClusterMetrics != nil {
		routes = append(routes, route{path: "/metrics/cluster", get: s.clusterMetrics, read: viewer, gets: texts("text/plain", "The cluster's metrics, for Prometheus").or(http.StatusInternalServerError)})
	}
	return routes
}

// apiRoutes are what programs ask for, and what they may do.
func (s *server) apiRoutes() []route {
	document := answers[map[string]any]("This document")
	routes := []route{
		{path: "/api/openapi.json", get: s.withDescription(s.apiOpenAPI), read: viewer, gets: document},
		{path: "/api/v1/openapi.json", get: s.withDescription(s.apiOpenAPI), read: viewer, gets: document},
		{path: "/api/v1/leaders", get: s.apiLeaders, read: viewer, gets: lists[leaderItem]("List the roles with their leaders")},
		{path: "/api/v1/leaders/history", get: s.apiHistory, read: viewer, gets: lists[leaderstore.Tenure]("List tenures, newest first", with(paged, text("role", "Only of this role."))...)},
		{path: "/api/v1/nodes", get: s.apiNodes, read: viewer, gets: lists[nodestore.Node]("List the nodes")},
		{path: "/api/v1/queues", get: s.apiQueues, read: viewer, gets: lists[queuestore.Queue]("List the queues with what waits in them")},
		{path: "/api/v1/limits", get: s.apiLimits, read: viewer, gets: lists[queuestore.Usage]("List the limits in use")},
		{path: "/api/v1/events", get: s.apiEvents, read: viewer, gets: follows[eventstore.Event](lists[eventstore.Event]("List what happened in the cluster, newest first", with(followed, several("type", "Only of this type; may stand again, or name several with commas."), text("role", "Only of this role."))...))},
		{path: "/api/v1/compaction", get: s.apiCompaction, read: viewer, gets: answers[compactstore.Status]("Show what the log compactor did, and how large the tables are", limitParameter)},
		{path: "/api/v1/metrics/range", get: s.apiMetricsRange, read: viewer, gets: answers[rangeAnswer]("Read a metric's past", metricsParameters...)},
		{path: "/api/v1/alerts", get: s.apiAlerts, read: viewer, gets: lists[alertstore.Status]("List the alerts, those that fire first")},
		{path: "/api/v1/alerts/history", get: s.apiAlertsHistory, read: viewer, gets: lists[alertstore.Incident]("List incidents that are over, newest first", with(paged, alertParameter)...)},
		{path: "/api/v1/alerts/notifications", get: s.apiAlertsTold, read: viewer, gets: lists[outbox.Notification]("List what receivers were told, newest first", with(paged, alertParameter)...)},
	}
	routes = append(routes, s.cronRoutes()...)
	routes = append(routes, s.jobRoutes()...)
	routes = append(routes, s.writeRoutes()...)
	routes = append(routes, s.moveRoutes()...)
	routes = append(routes, s.silenceRoutes()...)
	routes = append(routes, s.fileRoutes()...)
	if s.Audit != nil {
		routes = append(routes, route{path: "/api/v1/audit", get: s.apiAudit, read: admin, gets: follows[auditstore.Entry](lists[auditstore.Entry]("List who did what, and who was refused it, newest first",
			with(followed, text("actor", "Only what this one did."), text("action", "Only this action, such as job.cancel."), among("outcome", "Only these.", auditstore.Outcomes()...))...))})
	}
	if s.Doctor != nil {
		routes = append(routes, route{path: "/api/v1/doctor", get: s.apiDoctor, read: viewer, gets: lists[Finding]("Examine the database, the way to it and the cluster")})
	}
	if s.Settings != nil {
		routes = append(routes, route{path: "/api/v1/settings", get: s.apiSettings, read: viewer, gets: answers[map[string]any]("Show the node's configuration, secrets redacted")})
	}
	return routes
}

var metricsParameters = []parameter{
	{name: "metric", kind: "string", about: "The metric's name.", required: true},
	instant("from", "An hour before to without."), instant("to", "Now without."),
	text("step", "How wide the windows are: 1m, 5m or 1h; what fits the stretch without."),
	{name: "label", kind: "string", about: "label.NAME: only series whose label NAME has this value.", family: true},
}

func (s *server) cronRoutes() []route {
	return []route{
		{path: "/api/v1/crons", get: s.apiCrons, read: viewer, gets: lists[cronItem]("List the crons by name", with(paged,
			text("q", "Only those with this in their name or job."), among("is", "Only those that are so.", cronFilters...))...)},
		{path: "/api/v1/crons/{name}", get: s.apiCron, read: viewer, gets: answers[cronDocument]("Show a cron with its next ticks")},
		{path: "/api/v1/crons/{name}/next", get: s.apiNext, read: viewer, gets: lists[explain.Coming]("Foresee the ticks of a cron",
			nextParameters...)},
		{path: "/api/v1/next", get: s.apiForesee, read: viewer, gets: answers[foreseen]("Foresee the ticks of an expression",
			with(nextParameters, parameter{name: "schedule", kind: "string", about: "An expression such as */5 * * * *.", required: true}, text("timezone", "Its zone; UTC without."))...)},
		{path: "/api/v1/crons/{name}/ticks", get: s.apiTicks, read: viewer, gets: lists[cronstore.Tick]("List a cron's ticks, newest first", with(paged, instant("before", "Only those before this instant."))...)},
		{path: "/api/v1/crons/{name}/ticks/{tick}", get: s.apiTick, read: viewer, gets: answers[explain.Explanation]("Say what became of a tick, and why")},
	}
}

// enqueueAction is what adding a job is called.
const enqueueAction = "job.enqueue"

// jobFilters are those of lists of jobs.
var jobFilters = []parameter{
	among("state", "Only jobs in this state.", jobStates...), text("kind", "Only jobs of this kind."),
	text("queue", "Only jobs of this queue."), text("cron", "Only runs of this cron."),
}

// deadFilters are those of lists of dead letters.
var deadFilters = []parameter{
	text("kind", "Only of this kind."), text("error", "Only with this in the error."),
	text("older_than", "Only of jobs that died longer ago, such as 6h or 2d."), text("newer_than", "Only of jobs that died since then."),
}

// argsParameter is of lists of jobs.
var argsParameter = flag("args", "Also the arguments of each job. A page ends early once it has 1 MiB of them.")

func (s *server) jobRoutes() []route {
	jobs := route{path: "/api/v1/jobs", get: s.apiJobs, read: viewer, gets: lists[jobstore.Job]("List the jobs, newest first", with(pagedByID, append(slices.Clone(jobFilters), argsParameter)...)...)}
	if s.Enqueuer != nil {
		jobs.post, jobs.write, jobs.action = s.apiEnqueue, operator, enqueueAction
		jobs.posts = takes[enqueueAsk, jobstore.Enqueued](http.StatusCreated, "Add a job; 200: the same one is there already").or(http.StatusOK).sends(locationHeader)
	}
	routes := []route{
		jobs,
		{path: "/api/v1/job-counts", get: s.apiCounts, read: viewer, gets: lists[jobstore.Count]("Count the jobs by queue and state, as of some seconds ago where they are many")},
		{path: "/api/v1/jobs/{id}", get: s.apiJob, read: viewer, gets: answers[jobstore.Job]("Show a job with its attempts")},
		{path: "/api/v1/jobs/{id}/logs", get: s.apiLogs, read: viewer, gets: follows[jobstore.LogChunk](lists[jobstore.LogChunk]("Read the output of an attempt",
			upTo("attempt", "Which attempt; the newest without.", maxAttempt), upTo("after", "Only chunks after this one.", maxChunk), cursorParameter,
			flag("follow", "Go on until the attempt ends, one chunk a line (application/x-ndjson).")))},
		{path: "/api/v1/jobs/{id}/explain", get: s.apiExplain, read: viewer, gets: answers[explain.Placement]("Say where a job goes, why it waits, or who ran it")},
		{path: "/api/v1/dead", get: s.apiDead, read: viewer, gets: lists[jobstore.DeadGroup]("List the dead letters by kind and error", deadFilters...)},
		{path: "/api/v1/dead-letters", get: s.apiDeadJobs, read: viewer, gets: lists[jobstore.DeadLetter]("List the dead letters, newest first", with(pagedByID, deadFilters...)...)},
		{path: "/api/v1/dead/{group}", get: s.apiDeadJobs, read: viewer, gets: lists[jobstore.DeadLetter]("List the dead letters of a group, newest first", with(pagedByID, deadFilters...)...)},
	}
	if s.Enqueuer != nil {
		routes = append(routes,
			route{path: "/api/v1/kinds", get: s.apiKinds, read: viewer, gets: lists[kindItem]("List the kinds of jobs that can be enqueued")},
			route{path: "/api/v1/kinds/{kind}", get: s.apiKind, read: viewer, gets: answers[kindDocument]("Say what arguments a kind asks for")})
	}
	return routes
}

// writeRoutes are those of the API that change something, as far as the server may.
func (s *server) writeRoutes() (routes []route) {
	if s.operates() {
		routes = append(routes,
			route{path: "/api/v1/crons/{name}/trigger", post: s.apiTrigger, write: operator, posts: takes[triggerAsk, cronstore.Tick](http.StatusCreated, "Run a cron now, or a tick of it that did not run").sends(locationHeader)},
			route{path: "/api/v1/crons/{name}/pause", post: s.apiPause, write: operator, posts: does[heldDocument](http.StatusOK, "Hold a cron")},
			route{path: "/api/v1/crons/{name}/resume", post: s.apiResume, write: operator, posts: does[heldDocument](http.StatusOK, "Let a cron go on")},
			route{path: "/api/v1/crons/{name}/backfill", post: s.apiBackfill, write: operator, posts: takes[backfillAsk, backfillDocument](http.StatusOK, "Run the ticks of a stretch that did not run")})
	}
	if s.Changer != nil {
		for _, action := range jobstore.Actions {
			routes = append(routes,
				route{path: "/api/v1/jobs/{id}/" + string(action), post: s.apiAct(action), write: operator, posts: does[jobstore.Change](http.StatusOK, capital(string(action))+" a job")},
				route{path: "/api/v1/bulk/jobs/" + string(action), post: s.apiActOnAll(action), write: operator, posts: takes[bulkAsk, bulkDocument](http.StatusOK, capital(string(action))+" all jobs that a filter names")})
		}
	}
	if s.Stopper != nil {
		routes = append(routes,
			route{path: "/api/v1/queues/{name}/pause", post: s.apiTurnQueue(true), write: operator, posts: does[turnedDocument](http.StatusOK, "Pause a queue")},
			route{path: "/api/v1/queues/{name}/resume", post: s.apiTurnQueue(false), write: operator, posts: does[turnedDocument](http.StatusOK, "Let a queue go on")})
	}
	if s.DeadChanger != nil {
		for _, action := range deadActions {
			routes = append(routes, route{path: "/api/v1/bulk/dead/" + string(action), post: s.apiActOnDead(action), write: operator, posts: takes[deadAsk, bulkDocument](http.StatusOK, capital(string(action))+" all dead letters that a filter names")})
		}
	}
	return routes
}
