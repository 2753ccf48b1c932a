package openapi

// operationText is the text about an operation in the OpenAPI document, in addition to its
// summary.
type operationText struct {
	// id is the operation's name in generated clients.
	id string
	// about is the description.
	about string
}

// Sentences that several descriptions share.
const (
	changesNothingTwice = " `changed` is false if nothing had to change."
	actsOnMany          = " At least one field of the filter is required. `dry_run` counts the jobs and changes nothing. One request changes 20,000 jobs at most; a filter with more is refused with 422."
	actsOnManyDead      = " At least one field of the filter is required, or `all` alone. `dry_run` counts the dead letters and changes nothing. One request changes 20,000 at most; a filter with more is refused with 422."
	asksTheLeader       = " The answer comes at once; `GET /api/v1/leaders` shows a later term when it has happened."
)

// OperationTexts are keyed by method and path.
var OperationTexts = map[string]operationText{
	"GET /healthz":         {"getHealth", "Answers 200 while the process serves requests. It reads nothing from the database: use it for liveness probes."},
	"GET /readyz":          {"getReadiness", "Answers 200 when the node can reach the database, the schema is current and its workers run, and 503 otherwise. `not_ready` lists the reasons; without a token they name no hosts. Leadership does not matter."},
	"GET /leader/{role}":   {"probeLeader", "Lets a load balancer route requests to the leader of a role. Both answers name the leader in the body and in the headers, if it is known. The leader answers from memory, even if the database is down."},
	"GET /cluster/status":  {"getClusterStatus", "Returns the cluster's health with its roles, the scheduler's lease and all nodes. A cluster without a leader is answered with 200 and `degraded`."},
	"GET /cluster/leader":  {"getClusterLeader", "Returns the lease of the role's leader."},
	"GET /cluster/health":  {"getClusterHealth", "Returns `healthy` if every role has a leader, and `degraded` otherwise. Both are answered with 200; 503 means that the database cannot be read."},
	"GET /metrics":         {"getMetrics", "Returns the metrics of this node in the text format of Prometheus. Scrape every node."},
	"GET /metrics/cluster": {"getClusterMetrics", "Returns the newest metrics that the metrics aggregator has recorded for the cluster, in the text format of Prometheus. Scrape any one node."},

	"GET /api/openapi.json":    {"getDocument", "Returns this document. It describes the operations that this node serves with its configuration."},
	"GET /api/v1/openapi.json": {"getDocumentV1", "Returns the same document as `/api/openapi.json`."},

	"GET /api/v1/leaders":                   {"listLeaders", "Returns each role with its leader, its term and the remaining time of its lease. A role without a leader is listed too. The list is complete. `renewals` are those of the role's lease in the last hour, by all its leaders; `heartbeats` are those of the leader's node since its process started. Both are missing until the first are recorded."},
	"GET /api/v1/leaders/history":           {"listTenures", "Returns who led each role, when, why the term ended, and the gap before it."},
	"POST /api/v1/leaders/{role}/step-down": {"stepDownLeader", "Asks the role's leader to give the role up to any other node." + asksTheLeader},
	"POST /api/v1/leaders/{role}/transfer":  {"transferLeader", "Asks the role's leader to hand the role to the node `to`. `asked` is false if that node leads already." + asksTheLeader},
	"POST /api/v1/leaders/{role}/drill":     {"drillLeader", "Hands the role over to any other node, waits for the next leader, for 30 seconds at most, and returns how long each part took."},
	"GET /api/v1/nodes":                     {"listNodes", "Returns the nodes with their roles, their capabilities, their slots and their last heartbeat. The list is complete."},
	"POST /api/v1/nodes/{node}/drain":       {"drainNode", "Closes the node to new jobs and asks it to hand its roles over. Running jobs continue. The answer comes at once."},
	"POST /api/v1/nodes/{node}/undrain":     {"undrainNode", "Opens a drained node to jobs and roles again."},

	"GET /api/v1/queues":                {"listQueues", "Returns the queues with their depth, their limits and whether they are paused. The list is complete."},
	"POST /api/v1/queues/{name}/pause":  {"pauseQueue", "Stops jobs of the queue from starting. Running jobs continue." + changesNothingTwice},
	"POST /api/v1/queues/{name}/resume": {"resumeQueue", "Lets jobs of a paused queue start again." + changesNothingTwice},
	"GET /api/v1/limits":                {"listLimits", "Returns each limit of the whole cluster with its use. The list is complete."},

	"GET /api/v1/jobs":                      {"listJobs", "Returns the jobs that match the filter."},
	"POST /api/v1/jobs":                     {"enqueueJob", "Adds a job. If the uniqueness of its kind, or that in the body, matches an existing job, that job is returned with 200 and `existing`."},
	"GET /api/v1/jobs/{id}":                 {"getJob", "Returns the job with its arguments, its attempts, its errors and its output."},
	"GET /api/v1/jobs/{id}/logs":            {"getJobLogs", "Returns the output of one attempt in chunks, oldest first. `next` is the address of the following chunks, even while the attempt runs."},
	"GET /api/v1/jobs/{id}/explain":         {"explainJob", "Returns in one sentence, and node by node, where a waiting job will run or why no node can take it. For other jobs it returns which nodes ran them."},
	"POST /api/v1/jobs/{id}/cancel":         {"cancelJob", "Cancels a job, even one that is running. A job that has ended is refused with 409."},
	"POST /api/v1/jobs/{id}/discard":        {"discardJob", "Discards a waiting job. A job that runs or has ended is refused with 409; cancel one that runs."},
	"POST /api/v1/jobs/{id}/retry":          {"retryJob", "Makes a job available again, even one that has ended. If all its attempts were used, it gets one more."},
	"POST /api/v1/bulk/jobs/cancel":         {"cancelJobs", "Cancels the jobs that match the filter, even running ones." + actsOnMany},
	"POST /api/v1/bulk/jobs/discard":        {"discardJobs", "Discards the waiting jobs that match the filter." + actsOnMany},
	"POST /api/v1/bulk/jobs/retry":          {"retryJobs", "Makes the jobs that match the filter available again." + actsOnMany},
	"GET /api/v1/job-counts":                {"countJobs", "Returns the number of jobs in each queue and state. In a large database the count is some seconds old; before the first count the answer is 503."},
	"GET /api/v1/kinds":                     {"listKinds", "Returns the kinds that a node has or had a worker for. The list is complete."},
	"GET /api/v1/kinds/{kind}":              {"getKind", "Returns the arguments of a kind, by its schema. A kind without a schema has none."},
	"GET /api/v1/dead":                      {"listDeadGroups", "Returns the dead letters in groups of one kind and one error. The list is complete."},
	"GET /api/v1/dead/{group}":              {"listDeadLettersOfGroup", "Returns the dead letters of one group. An empty group is answered with 404."},
	"GET /api/v1/dead-letters":              {"listDeadLetters", "Returns the jobs that have failed for good and were neither retried nor discarded."},
	"POST /api/v1/bulk/dead/discard":        {"discardDeadLetters", "Removes the dead letters that match the filter from the list, without another attempt." + actsOnManyDead},
	"POST /api/v1/bulk/dead/retry":          {"retryDeadLetters", "Makes the dead letters that match the filter available again." + actsOnManyDead},
	"GET /api/v1/events":                    {"listEvents", "Returns the events of the cluster: elections, joins and deaths of nodes, applied configurations and more."},
	"GET /api/v1/audit":                     {"listAudit", "Returns the audit log: each action with its caller, its address and its outcome."},
	"GET /api/v1/compaction":                {"getCompaction", "Returns the newest passes of the log compactor and the size of each table."},
	"GET /api/v1/metrics/range":             {"getMetricRange", "Returns the recorded values of one metric, series by series. An answer has at most 50,000 points; `more` reports that some are missing."},
	"GET /api/v1/crons":                     {"listCrons", "Returns the crons that match the filter, by name."},
	"GET /api/v1/crons/{name}":              {"getCron", "Returns the cron with its definition, its state and its next five ticks. A removed cron is found as long as its history is kept."},
	"GET /api/v1/crons/{name}/next":         {"listNextTicks", "Returns the next ticks of the cron. Ticks that daylight saving time leaves out are not listed."},
	"GET /api/v1/next":                      {"listNextTicksOfSchedule", "Returns the next ticks of an expression, and the expression in words."},
	"GET /api/v1/crons/{name}/ticks":        {"listTicks", "Returns the recorded ticks of the cron, each with its verdict."},
	"GET /api/v1/crons/{name}/ticks/{tick}": {"explainTick", "Returns the verdict of one tick with its reason, even if the tick is not recorded."},
	"POST /api/v1/crons/{name}/trigger":     {"triggerCron", "Runs the cron now, or runs the tick `at` if it did not run. The answer names the job."},
	"POST /api/v1/crons/{name}/pause":       {"pauseCron", "Stops the cron from firing. Running jobs continue." + changesNothingTwice},
	"POST /api/v1/crons/{name}/resume":      {"resumeCron", "Lets a paused cron fire again." + changesNothingTwice},
	"POST /api/v1/crons/{name}/backfill":    {"backfillCron", "Runs the ticks from `from` up to `to` that have no job, oldest first. `dry_run` lists them and runs none."},

	"GET /api/v1/alerts":                    {"listAlerts", "Returns the alerts in force with their open incidents and silences. The list is complete."},
	"GET /api/v1/alerts/history":            {"listIncidents", "Returns the incidents that are resolved."},
	"GET /api/v1/alerts/notifications":      {"listNotifications", "Returns the notifications with their receiver, their state and the last error."},
	"GET /api/v1/alerts/check":              {"checkAlerts", "Returns the errors in the alerts of this node's file. An empty list means that there are none."},
	"GET /api/v1/alerts/export":             {"exportAlerts", "Returns the alerts of this node's file as a rule file of Prometheus, in YAML."},
	"POST /api/v1/alerts/{alert}/silence":   {"silenceAlert", "Stops notifications of the alert, for the duration `for` or until `until`. One of the two is required. Incidents are still recorded."},
	"POST /api/v1/alerts/{alert}/unsilence": {"unsilenceAlert", "Ends the silence of the alert." + changesNothingTwice},
	"POST /api/v1/alerts/{alert}/test":      {"testAlert", "Sends a test notification to each receiver of the alert. The answer comes at once; the list of notifications shows the result."},

	"GET /api/v1/doctor":                {"runDoctor", "Checks the database, its grants, the connection, the schema and the nodes. Each finding is ok, warn or fail, with its remedy. The list is complete."},
	"GET /api/v1/settings":              {"getSettings", "Returns the effective configuration of this node."},
	"GET /api/v1/plan":                  {"getPlan", "Compares this node's file with the configuration in force, and returns the runs that would appear and vanish. It changes nothing."},
	"POST /api/v1/apply":                {"applyFile", "Applies this node's file, even if the cluster has applied a later one. If that would remove crons the answer is 409 unless `yes` is true."},
	"GET /api/v1/tokens":                {"listTokens", "Returns the tokens with their scope, their expiry and their last use. The list is complete."},
	"POST /api/v1/tokens":               {"createToken", "Creates a token and returns its secret, which is not shown again."},
	"POST /api/v1/tokens/{name}/revoke": {"revokeToken", "Revokes the token. Its sessions end too."},
}

// pathTexts describe the path parameters.
var pathTexts = map[string]string{
	"alert": "The name of the alert.",
	"group": "The id of the group, from the list of groups.",
	"id":    "The id of the job.",
	"kind":  "The name of the kind.",
	"name":  "The name of the cron, the queue or the token.",
	"node":  "The id of the node.",
	"role":  "The name of the role, such as scheduler.",
	"tick":  "The time of the tick (RFC 3339).",
}

// tagTexts describe the tags.
var tagTexts = []apiTag{
	{"alerts", "Alerts, their incidents, their silences and their notifications."},
	{"audit", "Who did what."},
	{"cluster", "The state of the cluster, its events and its checks."},
	{"configuration", "The file of a node and the configuration in force."},
	{"crons", "Crons and their ticks."},
	{"dead-letters", "Jobs that have failed for good."},
	{"jobs", "Jobs, their output and their kinds."},
	{"leaders", "Roles, their leaders and hand-overs."},
	{"metrics", "Metrics for Prometheus, and their recorded values."},
	{"node", "Probes of one node, and this document."},
	{"nodes", "The nodes of the cluster."},
	{"queues", "Queues and limits."},
	{"storage", "The log compactor and the size of the tables."},
	{"tokens", "Tokens of callers."},
}

// tagOfWord maps the first word of a path to its tag, for words that are not tags
// themselves.
var tagOfWord = map[string]string{
	"apply": "configuration", "plan": "configuration", "settings": "configuration",
	"compaction": "storage", "dead": "dead-letters",
	"doctor": "cluster", "events": "cluster", "healthz": "node", "job-counts": "jobs", "kinds": "jobs",
	"leader": "node", "limits": "queues", "next": "crons", "openapi.json": "node", "readyz": "node",
}
