// Package metrics names every Prometheus series that a node exports.
package metrics

import (
	"crypto/rand"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are the collectors of one node. The zero value is not usable; New
// registers them all.
type Metrics struct {
	Registry *prometheus.Registry
	// Instance names this set of counters: whoever sees another one knows that
	// they began again at 0.
	Instance string

	// Leadership, labels role and node_id.
	// SetLead sets the gauges.
	LeaderElections    *prometheus.CounterVec // and result: won, lost, error
	LeaderFailovers    *prometheus.CounterVec
	LeaderGapSeconds   *prometheus.HistogramVec
	LeaderFencedWrites *prometheus.CounterVec
	LeaderRenewals     *prometheus.CounterVec // and result: renewed, refused, error

	// Crons, label cron: always the value of CronLabel.
	CronRuns     *prometheus.CounterVec
	CronTicks    *prometheus.CounterVec // and verdict
	CronDelay    *prometheus.HistogramVec
	CronFailures *prometheus.CounterVec
	CronMissed   *prometheus.CounterVec

	// Jobs, label kind.
	JobEnqueued *prometheus.CounterVec
	JobStarted  *prometheus.CounterVec
	JobFinished *prometheus.CounterVec // and outcome
	JobDuration *prometheus.HistogramVec
	JobWait     *prometheus.HistogramVec
	JobRunning  *prometheus.GaugeVec
	// How this node starts commands.
	CommandStartsWaiting prometheus.Gauge
	CommandStartSeconds  prometheus.Gauge
	JobOutputLines       *prometheus.CounterVec
	JobOutputDropped     *prometheus.CounterVec
	JobOrphaned          prometheus.Counter
	JobRescued           prometheus.Counter
	// Dead letters, label kind, counted by the scheduler's leader.
	JobDeadLetters  *prometheus.CounterVec
	JobSecondRounds *prometheus.CounterVec

	// Assignment, by the scheduler's leader.
	AssignmentOffers  prometheus.Counter // jobs offered to nodes
	AssignmentClaims  prometheus.Counter // jobs that this node claimed
	AssignmentRefused prometheus.Counter // offered jobs that it could not claim
	AssignmentWaiting prometheus.Gauge   // available jobs that no node could take
	// AssignmentUnworked are those of them whose kind no node has a worker for, by kind.
	AssignmentUnworked *prometheus.GaugeVec

	NodeSlots          *prometheus.GaugeVec // label node_id
	NodeStarvedSeconds prometheus.Counter
	NodeHeartbeats     *prometheus.CounterVec // labels node_id and result: success, failure

	// The node's own file.
	ConfigReloadSuccess prometheus.Gauge
	ConfigReloads       *prometheus.CounterVec // label result: success or failure
	ConfigReloadedAt    prometheus.Gauge

	// NodeReady is 1 while the node can work.
	NodeReady prometheus.Gauge

	// Cluster are the gauges that the metrics aggregator's leader sets, by name; no
	// series on the other nodes.
	Cluster map[string]*prometheus.GaugeVec

	// The log compactor's passes, by its leader.
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
	crons  cronLabels
	leads  *leads
}

var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// New returns the collectors in a registry of their own, beside Go's and the
// process's.
func New(version string) *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	f := &factory{registry: registry}
	leader := []string{"role", "node_id"}
	m := &Metrics{
		Registry: registry,
		Instance: rand.Text(),

		leads:              newLeads(f),
		LeaderElections:    f.counterVec("forge_leader_elections_total", "Attempts of this node to win the role, by result: won, lost or error.", "role", "node_id", "result"),
		LeaderFailovers:    f.counterVec(LeaderFailoversName, "Times this node took the role over from another process.", leader...),
		LeaderGapSeconds:   f.histogramVec("forge_leader_gap_seconds", "Seconds without a leader before this node took the role.", leader...),
		LeaderFencedWrites: f.counterVec("forge_leader_fenced_writes_total", "Writes of this node that the database refused because its term was over.", leader...),

		CronRuns:     f.counterVec("forge_cron_runs_total", "Ticks that became a job, fired in time or caught up.", "cron"),
		CronTicks:    f.counterVec("forge_cron_ticks_total", "Due ticks recorded in the ledger, by verdict.", "cron", "verdict"),
		CronDelay:    f.histogramVec("forge_cron_delay_seconds", "Seconds from a tick to the commit of its job.", "cron"),
		CronFailures: f.counterVec("forge_cron_failures_total", "Ticks whose job could not be inserted.", "cron"),
		CronMissed:   f.counterVec("forge_cron_missed_total", "Due ticks that were skipped because they fell due while nobody could fire them.", "cron"),

		JobEnqueued:          f.counterVec("forge_job_enqueued_total", "Jobs that this node inserted, or found that a command had.", "kind"),
		JobStarted:           f.counterVec("forge_job_started_total", "Attempts started by this node.", "kind"),
		JobFinished:          f.counterVec("forge_job_finished_total", "Attempts finished by this node, by outcome. As the scheduler's leader it counts those of nodes that are gone: lost.", "kind", "outcome"),
		JobDuration:          f.histogramVec("forge_job_duration_seconds", "Seconds that an attempt ran.", "kind"),
		JobWait:              f.histogramVec("forge_job_wait_seconds", "Seconds from due to started.", "kind"),
		JobRunning:           f.gaugeVec("forge_job_running", "Jobs running on this node.", "kind"),
		CommandStartsWaiting: f.gauge("forge_command_starts_waiting", "Commands that this node has taken and not begun to start: it starts a few at a time."),
		CommandStartSeconds:  f.gauge("forge_command_start_seconds", "Seconds that starting a command takes on this node, smoothed; 0 before the first."),
		JobOutputLines:       f.counterVec("forge_job_output_lines_total", "Lines that attempts on this node wrote.", "kind"),
		JobOutputDropped:     f.counterVec("forge_job_output_dropped_lines_total", "Lines of those that were not kept: beyond output.capture, or the database did not take them in time.", "kind"),
		JobOrphaned:          f.counter("forge_job_orphaned_total", "Running jobs found on nodes that were gone."),
		JobRescued:           f.counter("forge_job_rescued_total", "Orphaned jobs made available again."),
		JobDeadLetters:       f.counterVec("forge_job_dead_letters_total", "Jobs found to have used up their attempts, as the scheduler's leader recorded them.", "kind"),
		JobSecondRounds:      f.counterVec("forge_job_second_rounds_total", "Second rounds of attempts that the scheduler's leader gave to dead letters.", "kind"),

		AssignmentOffers:   f.counter("forge_assignment_offers_total", "Jobs that this node, as the scheduler's leader, offered to nodes."),
		AssignmentClaims:   f.counter("forge_assignment_claims_total", "Offered jobs that this node claimed."),
		AssignmentRefused:  f.counter("forge_assignment_refused_total", "Offered jobs that this node could no longer claim."),
		AssignmentWaiting:  f.gauge("forge_assignment_waiting", "Available jobs that no node could take at the last sweep, as the scheduler's leader saw it."),
		AssignmentUnworked: f.gaugeVec("forge_assignment_unworked", "Those of them whose kind no live node has a worker for, by kind; no series for other kinds and on other nodes.", "kind"),

		NodeSlots:          f.gaugeVec("forge_node_slots", "Jobs that the node may run at once.", "node_id"),
		NodeReady:          f.gauge(NodeReadyName, "1 while the node is ready as /readyz says: it has started, and the database takes what it writes."),
		LeaderRenewals:     f.counterVec("forge_leader_renewals_total", "Attempts of this node to renew the role's lease, by result: renewed, refused because the term is over, or error.", "role", "node_id", "result"),
		NodeHeartbeats:     f.counterVec("forge_node_heartbeats_total", "Heartbeats of the node, by result: success or failure.", "node_id", "result"),
		NodeStarvedSeconds: f.counter("forge_node_starved_seconds_total", "Seconds that this node's process waited for a processor: work is late by as much, and beyond a lease roles change hands."),

		ConfigReloadSuccess: f.gauge("forge_config_reload_success", "1 if this node's file was taken over when it was last read, 0 if it was refused and the node goes on with what it had."),
		ConfigReloads:       f.counterVec("forge_config_reloads_total", "Times that this node read its file again, by result: success or failure.", "result"),
		ConfigReloadedAt:    f.gauge("forge_config_last_reload_success_timestamp_seconds", "When this node last took its file over, in Unix time."),
	}
	m.addAggregator(f)
	m.addCompactor(f)
	m.ConfigReloadSuccess.Set(1)
	for _, result := range reloads {
		m.ConfigReloads.WithLabelValues(result)
	}
	f.gaugeVec("forge_build_info", "1, with the version of this binary.", "version").WithLabelValues(version).Set(1)
	m.series = f.series
	return m
}

// addAggregator adds what only the metrics aggregator's leader tells.
func (m *Metrics) addAggregator(f *factory) {
	m.Cluster = map[string]*prometheus.GaugeVec{}
	for _, g := range clusterGauges {
		m.Cluster[g.name] = f.gaugeVec(g.name, g.help, g.labels...)
	}
}

// Names of the series that the metrics aggregator's leader counts itself.
const (
	QueueDepthName = "forge_queue_depth"
	NodesName      = "forge_nodes"

	ConfigDriftName = "forge_config_drifting_nodes"

	NodeReportingName = "forge_node_reporting"
	NodeClockName     = "forge_node_clock_offset_seconds"

	QueueOldestName = "forge_queue_oldest_waiting_seconds"
	QueuePausedName = "forge_queue_paused_seconds"

	SnapshotName    = "forge_database_oldest_snapshot_transactions"
	TransactionName = "forge_database_oldest_transaction_seconds"
	SetBackName     = "forge_database_clock_set_back_seconds"
)

const byLeader = ", as the metrics aggregator's leader counted them; no series on the other nodes."

var clusterGauges = []struct {
	name, help string
	labels     []string
}{
	{QueueDepthName, "Unfinished jobs by queue and state" + byLeader, []string{"queue", "state"}},
	{QueueOldestName, "Seconds that the queue's oldest available job has waited, 0 without one; by the metrics aggregator's leader.", []string{"queue"}},
	{QueuePausedName, "Seconds for which the queue has been paused, 0 while it is not; by the metrics aggregator's leader.", []string{"queue"}},
	{NodesName, "Nodes by state" + byLeader, []string{"state"}},
	{ConfigDriftName, "Nodes that run another configuration than the one in force" + byLeader, nil},
	{NodeReportingName, "1 while the node hands its metrics to the metrics aggregator, 0 once three reports are missing; of the nodes that have not left, by the metrics aggregator's leader.", []string{"node_id"}},
	{NodeClockName, "Seconds by which the node's clock is ahead of the database's, below 0 if it is behind, to a tenth; of live nodes, by the metrics aggregator's leader.", []string{"node_id"}},
	{SnapshotName, "Transactions begun since the oldest snapshot that keeps VACUUM from removing dead rows, by its holder: session, standby, slot or prepared; by the metrics aggregator's leader.", []string{"holder"}},
	{TransactionName, "Seconds since the oldest transaction with such a snapshot began, by its holder: session or prepared; by the metrics aggregator's leader.", []string{"holder"}},
	{SetBackName, "Seconds by which the newest instant that the cluster recorded is ahead of the database's clock, 0 unless that was set back; by the metrics aggregator's leader.", nil},
}

// OfCluster reports whether the metrics aggregator's leader sets a series.
func OfCluster(name string) bool {
	for _, g := range clusterGauges {
		if g.name == name {
			return true
		}
	}
	return false
}

// NodeReadyName is the name of Metrics.NodeReady.
const NodeReadyName = "forge_node_ready"

// Names of series of which the aggregator's leader writes a 0 for each role, so
// that a sum over them is never empty.
const (
	LeaderIsLeaderName  = "forge_leader_is_leader"
	LeaderFailoversName = "forge_leader_failovers_total"
)

// Handler serves the registry to Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{Registry: m.Registry})
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

// factory registers collectors and remembers what they are.
type factory struct {
	registry prometheus.Registerer
	series   []Series
}

func (f *factory) register(kind, name, help string, labels []string, collector prometheus.Collector) {
	f.registry.MustRegister(collector)
	f.series = append(f.series, Series{Name: name, Type: kind, Labels: labels, Help: help})
}

func (f *factory) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	f.register("counter", name, help, labels, c)
	return c
}

func (f *factory) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	f.register("counter", name, help, nil, c)
	return c
}

func (f *factory) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	c := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	f.register("gauge", name, help, labels, c)
	return c
}

func (f *factory) gauge(name, help string) prometheus.Gauge {
	c := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	f.register("gauge", name, help, nil, c)
	return c
}

func (f *factory) histogramVec(name, help string, labels ...string) *prometheus.HistogramVec {
	c := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, labels)
	f.register("histogram", name, help, labels, c)
	return c
}
