package metrics

import (
	"slices"
	"sync"
)

// MaxCrons bounds the values of the label cron; the crons beyond it share
// OtherCrons.
const (
	MaxCrons   = 1000
	OtherCrons = "_other"
)

// A counter that first appears at 1 has no increase for rate(): the first event
// would never be seen. So every counter is there, at 0, before anything happens.
var (
	results  = []string{"won", "lost", "error"}
	renewals = []string{"renewed", "refused", "error"}
	beats    = []string{"success", "failure"}
	reloads  = []string{"success", "failure"}
	outcomes = []string{"completed", "failed", "cancelled", "timed_out", "lost"}
	// verdicts are the ledger's: forge_cron_ticks.verdict.
	verdicts = []string{
		"fired", "caught_up", "queued", "skipped_overlap", "skipped_window", "skipped_limit", "skipped_dst",
		"skipped_paused", "skipped_excluded", "replaced", "failed", "triggered", "backfilled",
	}
)

// InitRoles starts the series of the node and of the roles that it stands for at 0.
// Those that are there already keep their values.
func (m *Metrics) InitRoles(nodeID string, roles []string) {
	for _, role := range roles {
		m.leads.add(role, nodeID)
		m.LeaderFailovers.WithLabelValues(role, nodeID)
		m.LeaderFencedWrites.WithLabelValues(role, nodeID)
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
}

// InitCrons starts the counters of the configured crons at 0. It may be called
// again with the crons of a reloaded file: a cron keeps the label that it has.
func (m *Metrics) InitCrons(names []string) {
	for _, label := range m.crons.add(names) {
		m.CronRuns.WithLabelValues(label)
		m.CronFailures.WithLabelValues(label)
		m.CronMissed.WithLabelValues(label)
		for _, verdict := range verdicts {
			m.CronTicks.WithLabelValues(label, verdict)
		}
	}
}

// CronLabel is the value of the label cron for a cron: its name, or OtherCrons
// when there are more than MaxCrons.
func (m *Metrics) CronLabel(name string) string { return m.crons.label(name) }

// InitKinds starts the series of the configured job kinds at 0.
func (m *Metrics) InitKinds(kinds []string) {
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

// cronLabels are the crons that have a label value of their own.
type cronLabels struct {
	mu    sync.Mutex
	named map[string]bool
}

// add gives names labels of their own while there is room, in the order of the
// alphabet so that all nodes agree, and returns the labels of names.
func (c *cronLabels) add(names []string) []string {
	labels := slices.Sorted(slices.Values(names))
	for i, name := range labels {
		labels[i] = c.label(name)
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}

// label also takes a cron that add never saw: another node may have applied it.
func (c *cronLabels) label(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.named == nil {
		c.named = map[string]bool{}
	}
	if !c.named[name] && len(c.named) >= MaxCrons {
		return OtherCrons
	}
	c.named[name] = true
	return name
}
