// Package metrics names every Prometheus series that a node exports.
package metrics

import (
	"crypto/rand"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics holds the collectors of one node. The zero value is not usable; New
// registers all collectors.
type Metrics struct {
	Registry *prometheus.Registry
	// Instance identifies this set of counters. A reader that sees another Instance
	// knows that the counters restarted at 0.
	Instance string
	// Began is when the counters started at 0.
	Began time.Time

	// Leadership: labels role and node_id. SetLead sets the gauges.
	LeaderElections    *prometheus.CounterVec // also result: won, lost or error
	LeaderFailovers    *prometheus.CounterVec
	LeaderGapSeconds   *prometheus.HistogramVec
	LeaderFencedWrites *prometheus.CounterVec
	LeaderRenewals     *prometheus.CounterVec // also result: renewed, refused or error
	LeaderLeaseErrors  *prometheus.CounterVec

	// Crons: label cron, always the value of CronLabel.
	CronRuns     *prometheus.CounterVec
	CronTicks    *prometheus.CounterVec // also verdict
	CronDelay    *prometheus.HistogramVec
	CronFailures *prometheus.CounterVec
	CronMissed   *prometheus.CounterVec

	// Jobs: label kind, for JobEnqueued the value of KindLabel.
	JobEnqueued *prometheus.CounterVec
	JobStarted  *prometheus.CounterVec
	JobFinished *prometheus.CounterVec // also outcome
	JobDuration *prometheus.HistogramVec
	JobWait     *prometheus.HistogramVec
	JobRunning  *prometheus.GaugeVec
	// Attempts of jobs by cron, queue and node. The labels are cron, always the value of
	// CronLabel, queue and node_id.
	CronJobs, QueueJobs, NodeJobs Attempts
	// Starts of commands on this node.
	CommandStartsWaiting prometheus.Gauge
	CommandStartSeconds  prometheus.Gauge
	JobOutputLines       *prometheus.CounterVec
	JobOutputDropped     *prometheus.CounterVec
	JobOrphaned          prometheus.Counter
	JobRescued           prometheus.Counter
	// Dead letters: label kind, counted by the scheduler's leader.
	JobDeadLetters  *prometheus.CounterVec
	JobSecondRounds *prometheus.CounterVec

	// Assignment by the scheduler's leader.
	AssignmentOffers  prometheus.Counter // jobs offered to nodes
	AssignmentClaims  prometheus.Counter // jobs that this node claimed
	AssignmentRefused prometheus.Counter // offered jobs that this node could not claim
	AssignmentWaiting prometheus.Gauge   // available jobs that no node could run
	// AssignmentStepSeconds is how long the leader's steps took. It has no labels.
	AssignmentStepSeconds *prometheus.HistogramVec
	// AssignmentUnworked counts the waiting jobs whose kind has no worker on any
	// node, by kind.
	AssignmentUnworked *prometheus.GaugeVec
	// LimitWait is how long the oldest job that a limit holds back has been due, by the
	// limit's scope, name and class, and by the value of its key.
	LimitWait *prometheus.GaugeVec

	NodeSlots          *prometheus.GaugeVec // label node_id
	NodeStarvedSeconds prometheus.Counter
	NodeHeartbeats     *prometheus.CounterVec // labels node_id and result: success or failure

	// Reloads of the node's file.
	ConfigReloadSuccess prometheus.Gauge
	ConfigReloads       *prometheus.CounterVec // label result: success or failure
	ConfigReloadedAt    prometheus.Gauge

	// NodeReady is 1 while the node is ready.
	NodeReady prometheus.Gauge

	// Cluster holds the gauges that the metrics aggregator's leader sets, by name.
	// Other nodes export no series of them.
	Cluster map[string]*prometheus.GaugeVec

	// Passes of the log compactor's leader.
	CompactorPasses      *prometheus.CounterVec // label result: complete or incomplete
	CompactorRemoved     *prometheus.CounterVec // label of
	CompactorChunks      prometheus.Counter
	CompactorTextBytes   prometheus.Counter
	CompactorPackBytes   prometheus.Counter
	CompactorPassSeconds *prometheus.HistogramVec // without labels
	// CompactorPassedAt has at most one series.
	CompactorPassedAt *prometheus.GaugeVec
	TableBytes        *prometheus.GaugeVec // label table

	series []Series
	crons  *labelNames
	kinds  *labelNames
	leads  *leads
}

var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// New returns the collectors in their own registry, together with the collectors of
// Go and of the process.
func New(version string) *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	f := &factory{registry: registry}
	m := &Metrics{
		Registry: registry, Instance: rand.Text(), Began: time.Now(), Cluster: map[string]*prometheus.GaugeVec{},
		crons: newLabelNames(MaxCrons), kinds: newLabelNames(MaxKinds),
	}
	m.addLeader(f)
	m.addCrons(f)
	m.addJobs(f)
	m.addAssignment(f)
	m.addNode(f)
	m.addConfig(f)
	for _, g := range clusterGauges {
		m.Cluster[g.name] = f.gaugeVec(g.name, g.help, g.labels...)
	}
	m.addCompactor(f)
	f.gaugeVec("forge_build_info", "1, with the version of this binary.", "version").WithLabelValues(version).Set(1)
	m.series = f.series
	return m
}

func (m *Metrics) addLeader(f *factory) {
	labels := []string{"role", "node_id"}
	m.leads = newLeads(f)
	m.LeaderElections = f.counterVec("forge_leader_elections_total", "Attempts of this node to acquire the role, by result: won, lost or error.", "role", "node_id", "result")
	m.LeaderRenewals = f.counterVec("forge_leader_renewals_total", "Attempts of this node to renew the role's lease, by result: renewed, refused because the term has ended, or error.", "role", "node_id", "result")
	m.LeaderLeaseErrors = f.counterVec("forge_leader_lease_errors_total", "Times that this node could not compete for the role's Lease object in Kubernetes, because a request failed or because another cluster uses the Lease.", labels...)
	m.LeaderFailovers = f.counterVec(LeaderFailoversName, "Times that this node acquired the role from another process.", labels...)
	m.LeaderGapSeconds = f.histogramVec("forge_leader_gap_seconds", "Seconds without a leader before this node acquired the role.", labels...)
	m.LeaderFencedWrites = f.counterVec("forge_leader_fenced_writes_total", "Writes of this node that the database refused because the node's term had ended.", labels...)
}

func (m *Metrics) addCrons(f *factory) {
	m.CronRuns = f.counterVec("forge_cron_runs_total", "Ticks for which a job was inserted: fired on time or caught up.", "cron")
	m.CronTicks = f.counterVec("forge_cron_ticks_total", "Due ticks that this node recorded in the ledger as the scheduler's leader, by verdict; not those that were triggered or backfilled by hand.", "cron", "verdict")
	m.CronDelay = f.histogramVec("forge_cron_delay_seconds", "Seconds from a tick to the commit of its job.", "cron")
	m.CronFailures = f.counterVec("forge_cron_failures_total", "Ticks whose job could not be inserted.", "cron")
	m.CronMissed = f.counterVec("forge_cron_missed_total", "Ticks that were missed because no leader could fire them when they were due.", "cron")
}

func (m *Metrics) addJobs(f *factory) {
	m.JobEnqueued = f.counterVec(JobEnqueuedName, "Jobs that this node inserted, and jobs inserted by commands and with SQL functions that this node counted.", "kind")
	m.JobStarted = f.counterVec("forge_job_started_total", "Attempts started by this node.", "kind")
	m.JobFinished = f.counterVec("forge_job_finished_total", "Attempts finished by this node, by outcome. The scheduler's leader also counts the attempts of dead nodes, as lost.", "kind", "outcome")
	m.JobDuration = f.histogramVec("forge_job_duration_seconds", "Seconds that an attempt ran.", "kind")
	m.JobWait = f.histogramVec("forge_job_wait_seconds", "Seconds from the time at which a job was due to its start.", "kind")
	m.JobRunning = f.gaugeVec("forge_job_running", "Jobs running on this node.", "kind")
	m.CronJobs = f.attempts(cronJobs, "by cron", "cron")
	m.QueueJobs = f.attempts(queueJobs, "by queue", "queue")
	m.NodeJobs = f.attempts(nodeJobs, "by node", "node_id")
	m.CommandStartsWaiting = f.gauge("forge_command_starts_waiting", "Claimed commands that wait to be started on this node, which starts a few at a time.")
	m.CommandStartSeconds = f.gauge("forge_command_start_seconds", "Seconds that starting a command takes on this node, smoothed; 0 before the first.")
	m.JobOutputLines = f.counterVec("forge_job_output_lines_total", "Output lines that attempts on this node wrote.", "kind")
	m.JobOutputDropped = f.counterVec("forge_job_output_dropped_lines_total", "Output lines that were not stored because they exceeded output.capture or the database did not store them in time.", "kind")
	m.JobOrphaned = f.counter("forge_job_orphaned_total", "Running jobs found on dead nodes.")
	m.JobRescued = f.counter("forge_job_rescued_total", "Orphaned jobs made available again.")
	m.JobDeadLetters = f.counterVec("forge_job_dead_letters_total", "Jobs that used up their attempts, as recorded by the scheduler's leader.", "kind")
	m.JobSecondRounds = f.counterVec("forge_job_second_rounds_total", "Second rounds of attempts that the scheduler's leader started for dead letters.", "kind")
}

func (m *Metrics) addAssignment(f *factory) {
	m.AssignmentOffers = f.counter("forge_assignment_offers_total", "Jobs that this node, as the scheduler's leader, offered to nodes.")
	m.AssignmentClaims = f.counter("forge_assignment_claims_total", "Offered jobs that this node claimed.")
	m.AssignmentRefused = f.counter("forge_assignment_refused_total", "Offered jobs that this node could no longer claim.")
	m.AssignmentWaiting = f.gauge("forge_assignment_waiting", "Available jobs that no node could run at the last sweep of the scheduler's leader.")
	m.AssignmentStepSeconds = f.histogramVec("forge_assignment_step_duration_seconds", "Seconds that a step of the scheduler's leader took: it reads available jobs and the use of their limits, and offers jobs.")
	m.AssignmentUnworked = f.gaugeVec("forge_assignment_unworked", "Available jobs whose kind has no worker on any live node, by kind; no series for other kinds or on other nodes.", "kind")
	m.LimitWait = f.gaugeVec("forge_limit_wait_seconds", "Seconds for which the oldest job that a limit holds back has been due, by scope (queue or job), name, limit (all, key, node or rate) and the value of its key; the 50 values with the longest waits, the others together as _other; no series where no job waits for a limit or on other nodes.", "scope", "name", "limit", "key")
}

func (m *Metrics) addNode(f *factory) {
	m.NodeSlots = f.gaugeVec("forge_node_slots", "Jobs that the node may run at once.", "node_id")
	m.NodeReady = f.gauge(NodeReadyName, "1 while the node is ready, as /readyz reports: it has started, and its writes to the database succeed.")
	m.NodeHeartbeats = f.counterVec("forge_node_heartbeats_total", "Heartbeats of the node, by result: success or failure.", "node_id", "result")
	m.NodeStarvedSeconds = f.counter("forge_node_starved_seconds_total", "Seconds that this node's process waited for a processor. Work is delayed by as much, and a wait longer than the lease causes failovers.")
}

func (m *Metrics) addConfig(f *factory) {
	m.ConfigReloadSuccess = f.gauge("forge_config_reload_success", "1 if this node applied its file when it last read it, 0 if it rejected the file and kept its previous configuration.")
	m.ConfigReloads = f.counterVec("forge_config_reloads_total", "Reloads of this node's file, by result: success or failure.", "result")
	m.ConfigReloadedAt = f.gauge("forge_config_last_reload_success_timestamp_seconds", "When this node last applied its file, in Unix time.")
	m.ConfigReloadSuccess.Set(1)
	for _, result := range reloads {
		m.ConfigReloads.WithLabelValues(result)
	}
}

// Names of the series that the metrics aggregator's leader computes.
const (
	QueueDepthName = "forge_queue_depth"
	NodesName      = "forge_nodes"

	ConfigDriftName = "forge_config_drifting_nodes"

	NodeReportingName = "forge_node_reporting"
	NodeClockName     = "forge_node_clock_offset_seconds"
	NodeUsedName      = "forge_node_slots_used"

	QueueOldestName = "forge_queue_oldest_waiting_seconds"
	QueuePausedName = "forge_queue_paused_seconds"

	SnapshotName    = "forge_database_oldest_snapshot_transactions"
	TransactionName = "forge_database_oldest_transaction_seconds"
	SlotBytesName   = "forge_database_replication_slot_bytes"
	SetBackName     = "forge_database_clock_set_back_seconds"
)

const byLeader = "; set by the metrics aggregator's leader, no series on other nodes."

type clusterGauge struct {
	name, help string
	labels     []string
}

var clusterGauges = []clusterGauge{
	{QueueDepthName, "Unfinished jobs by queue and state" + byLeader, []string{"queue", "state"}},
	{QueueOldestName, "Seconds that the queue's oldest available job has waited, 0 if there is none; set by the metrics aggregator's leader.", []string{"queue"}},
	{QueuePausedName, "Seconds for which the queue has been paused, 0 while it is not paused; set by the metrics aggregator's leader.", []string{"queue"}},
	{NodesName, "Nodes by state" + byLeader, []string{"state"}},
	{ConfigDriftName, "Nodes whose configuration differs from the one in force" + byLeader, nil},
	{NodeReportingName, "1 while the node reports its metrics, 0 once three reports are missing; for every node that has not left, set by the metrics aggregator's leader.", []string{"node_id"}},
	{NodeClockName, "Seconds by which the node's clock is ahead of the database's, negative if it is behind, rounded to a tenth; for live nodes, set by the metrics aggregator's leader.", []string{"node_id"}},
	{NodeUsedName, "Slots of the node that running jobs use, by its last heartbeat; for live nodes, set by the metrics aggregator's leader.", []string{"node_id"}},
	{SnapshotName, "Transactions started since the oldest snapshot that prevents VACUUM from removing dead rows, by holder: session, standby, slot or prepared; set by the metrics aggregator's leader.", []string{"holder"}},
	{TransactionName, "Seconds since the start of the oldest transaction whose snapshot prevents VACUUM from removing dead rows, by holder: session or prepared; set by the metrics aggregator's leader.", []string{"holder"}},
	{SlotBytesName, "Most bytes of write-ahead log that a replication slot of the server keeps for its consumer, 0 without slots" + byLeader, nil},
	{SetBackName, "Seconds by which the newest time that the cluster recorded is ahead of the database's clock, 0 unless the clock was set back; set by the metrics aggregator's leader.", nil},
}

// OfCluster reports whether the metrics aggregator's leader sets a series.
func OfCluster(name string) bool {
	return slices.ContainsFunc(clusterGauges, func(g clusterGauge) bool { return g.name == name })
}

// NodeReadyName is the name of Metrics.NodeReady.
const NodeReadyName = "forge_node_ready"

// JobEnqueuedName is the name of the series of enqueued jobs, whose kinds are bounded by KindLabel.
const JobEnqueuedName = "forge_job_enqueued_total"

// Names of series for which the aggregator's leader writes a 0 for each role, so
// that a sum over them is never empty.
const (
	LeaderIsLeaderName  = "forge_leader_is_leader"
	LeaderFailoversName = "forge_leader_failovers_total"
)

// Handler serves the registry to Prometheus. Only the format OpenMetrics, which Prometheus
// prefers if it is offered, has the exemplars of histograms.
func (m *Metrics) Handler(exemplars bool) http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{Registry: m.Registry, EnableOpenMetrics: exemplars})
}

// Series describes one metric that a node exports.
type Series struct {
	Name   string
	Type   string // counter, gauge or histogram
	Labels []string
	Help   string
}

// Series lists forge's own metrics in the order of their registration. The
// caller must not change it.
func (m *Metrics) Series() []Series { return m.series }

// factory registers collectors and records their descriptions.
type factory struct {
	registry prometheus.Registerer
	series   []Series
}

// register registers a collector and records its description.
func register[C prometheus.Collector](f *factory, kind, name, help string, labels []string, collector C) C {
	f.registry.MustRegister(collector)
	f.series = append(f.series, Series{Name: name, Type: kind, Labels: labels, Help: help})
	return collector
}

func (f *factory) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return register(f, "counter", name, help, labels, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func (f *factory) counter(name, help string) prometheus.Counter {
	return register(f, "counter", name, help, nil, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

func (f *factory) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(f, "gauge", name, help, labels, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

func (f *factory) gauge(name, help string) prometheus.Gauge {
	return register(f, "gauge", name, help, nil, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func (f *factory) histogramVec(name, help string, labels ...string) *prometheus.HistogramVec {
	options := prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}
	return register(f, "histogram", name, help, labels, prometheus.NewHistogramVec(options, labels))
}
