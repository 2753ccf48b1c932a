package metrics

import (
	"slices"
	"sync"
)

// MaxCrons bounds the values of the label cron; further crons share OtherCrons. MaxKinds and
// OtherKinds are the same for the label kind of enqueued jobs.
const (
	MaxCrons   = 1000
	OtherCrons = "_other"
	MaxKinds   = 1000
	OtherKinds = OtherCrons
)

// A counter that first appears at 1 has no increase for rate(), so its first event
// would never be visible. Every counter therefore starts at 0.
var (
	results  = []string{"won", "lost", "error"}
	renewals = []string{"renewed", "refused", "error"}
	beats    = []string{"success", "failure"}
	reloads  = []string{"success", "failure"}
	outcomes = []string{"completed", "failed", "cancelled", "timed_out", "lost"}
	// verdicts are those that a leader records; an operator's ticks are not counted.
	verdicts = []string{
		"fired", "caught_up", "queued", "skipped_overlap", "skipped_window", "skipped_limit", "skipped_dst",
		"skipped_paused", "skipped_excluded", "replaced", "failed",
	}
)

// InitRoles starts the series of the node and of its roles at 0. Existing series
// keep their values.
func (m *Metrics) InitRoles(nodeID string, roles []string) {
	for _, role := range roles {
		m.leads.add(role, nodeID)
		m.LeaderFailovers.WithLabelValues(role, nodeID)
		m.LeaderLeaseErrors.WithLabelValues(role, nodeID)
		m.LeaderFencedWrites.WithLabelValues(role, nodeID)
		m.LeaderGapSeconds.WithLabelValues(role, nodeID)
		for _, result := range renewals {
			m.LeaderRenewals.WithLabelValues(role, nodeID, result)
		}
		for _, result := range results {
			m.LeaderElections.WithLabelValues(role, nodeID, result)
		}
	}
	for _, result := range beats {
		m.NodeHeartbeats.WithLabelValues(nodeID, result)
	}
	m.NodeJobs.init(nodeID)
}

// InitCrons starts the counters of the configured crons at 0. It may be called
// again with the crons of a reloaded file; a cron keeps its label.
func (m *Metrics) InitCrons(names []string) {
	for _, label := range m.crons.add(names) {
		m.CronRuns.WithLabelValues(label)
		m.CronFailures.WithLabelValues(label)
		m.CronMissed.WithLabelValues(label)
		m.CronJobs.init(label)
		for _, verdict := range verdicts {
			m.CronTicks.WithLabelValues(label, verdict)
		}
	}
}

// CronLabel returns the value of the label cron for a cron: its name, or OtherCrons
// if there are more than MaxCrons.
func (m *Metrics) CronLabel(name string) string { return m.crons.label(name) }

// KindLabel returns the value of the label kind for an enqueued job, which may be of any kind: the
// kind, or OtherKinds if there are more than MaxKinds. A kind of InitKinds has its own label even
// then.
func (m *Metrics) KindLabel(kind string) string { return m.kinds.label(kind) }

// InitKinds starts the series of the configured job kinds at 0.
func (m *Metrics) InitKinds(kinds []string) {
	m.kinds.keep(kinds)
	for _, kind := range kinds {
		m.JobEnqueued.WithLabelValues(kind)
		m.JobStarted.WithLabelValues(kind)
		m.JobRunning.WithLabelValues(kind)
		m.JobDeadLetters.WithLabelValues(kind)
		m.JobSecondRounds.WithLabelValues(kind)
		m.JobOutputLines.WithLabelValues(kind)
		m.JobOutputDropped.WithLabelValues(kind)
		for _, outcome := range outcomes {
			m.JobFinished.WithLabelValues(kind, outcome)
		}
	}
}

// InitQueues starts the counters of the configured queues at 0.
func (m *Metrics) InitQueues(names []string) {
	for _, name := range names {
		m.QueueJobs.init(name)
	}
}

// labelNames holds the names that have their own label value.
type labelNames struct {
	most  int
	mu    sync.Mutex
	named map[string]bool
}

func newLabelNames(most int) *labelNames { return &labelNames{most: most, named: map[string]bool{}} }

// keep assigns labels to names even if there are more than most.
func (l *labelNames) keep(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		l.named[name] = true
	}
}

// add assigns labels to names while there is room, in alphabetical order so that
// all nodes agree, and returns the labels of names.
func (l *labelNames) add(names []string) []string {
	given := slices.Sorted(slices.Values(names))
	for i, name := range given {
		given[i] = l.label(name)
	}
	slices.Sort(given)
	return slices.Compact(given)
}

// label also accepts a name that add has not seen: another node may have applied the cron.
func (l *labelNames) label(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.named[name] && len(l.named) >= l.most {
		return OtherCrons
	}
	l.named[name] = true
	return name
}

var passResults = []string{"complete", "incomplete"}

func (m *Metrics) addCompactor(f *factory) {
	m.CompactorPasses = f.counterVec("forge_compactor_passes_total", "Passes of the log compactor's leader, by result: complete, or incomplete if a part of the pass failed.", "result")
	m.CompactorRemoved = f.counterVec("forge_compactor_removed_rows_total", "Rows that retention deleted, by what they recorded.", "of")
	m.CompactorChunks = f.counter("forge_compactor_merged_chunks_total", "Chunks of job output that the log compactor merged.")
	m.CompactorTextBytes = f.counter("forge_compactor_merged_bytes_total", "Bytes of text in the merged chunks, before compression.")
	m.CompactorPackBytes = f.counter("forge_compactor_packed_bytes_total", "Bytes of the merged chunks after compression.")
	m.CompactorPassSeconds = f.histogramVec("forge_compactor_pass_duration_seconds", "Seconds that a pass took, its pauses included.")
	m.CompactorPassedAt = f.gaugeVec("forge_compactor_last_pass_timestamp_seconds", "When the log compactor's leader ended its last pass, in Unix time; no series on other nodes.")
	m.TableBytes = f.gaugeVec("forge_table_bytes", "Size of a table with its indexes, as measured in the last pass of the log compactor's leader; no series on other nodes.", "table")
	for _, result := range passResults {
		m.CompactorPasses.WithLabelValues(result)
	}
}

// InitCompactor starts the counters of deleted rows at 0.
func (m *Metrics) InitCompactor(of []string) {
	for _, what := range of {
		m.CompactorRemoved.WithLabelValues(what)
	}
}
