package jobs

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// share contains the metrics of the attempts of one kind, cron, queue or node.
type share struct {
	wait, took prometheus.Observer
	finished   map[string]prometheus.Counter // by outcome
}

func newShare(of metrics.Attempts, label string) *share {
	made := &share{wait: of.Wait.WithLabelValues(label), took: of.Duration.WithLabelValues(label), finished: map[string]prometheus.Counter{}}
	for _, outcome := range []string{
		jobstore.OutcomeCompleted, jobstore.OutcomeFailed, jobstore.OutcomeCancelled,
		jobstore.OutcomeTimedOut, jobstore.OutcomeInterrupted, jobstore.OutcomeSnoozed, outcomeFenced,
	} {
		made.finished[outcome] = of.Finished.WithLabelValues(label, outcome)
	}
	return made
}

// meter contains the metrics of one kind.
type meter struct {
	share

	started, lines, dropped prometheus.Counter
	running                 prometheus.Gauge
}

// newMeter creates every series of the kind before its first event.
func newMeter(m *metrics.Metrics, kind string) *meter {
	return &meter{
		share:   *newShare(metrics.Attempts{Finished: m.JobFinished, Duration: m.JobDuration, Wait: m.JobWait}, kind),
		started: m.JobStarted.WithLabelValues(kind),
		running: m.JobRunning.WithLabelValues(kind),
		lines:   m.JobOutputLines.WithLabelValues(kind),
		dropped: m.JobOutputDropped.WithLabelValues(kind),
	}
}

// meters caches the meter of each kind, and the shares of each cron and queue. To find a
// series by its labels takes longer than anything else in the recording of a short attempt.
type meters struct {
	metrics *metrics.Metrics
	node    *share
	kinds   cached[*meter]
	crons   cached[*share]
	queues  cached[*share]
}

func newMeters(m *metrics.Metrics, nodeID string) *meters {
	return &meters{metrics: m, node: newShare(m.NodeJobs, nodeID)}
}

func (m *meters) of(kind string) *meter {
	return m.kinds.get(kind, func() *meter { return newMeter(m.metrics, kind) })
}

// ofCron returns nil for a job of no cron.
func (m *meters) ofCron(name string) *share {
	if name == "" {
		return nil
	}
	label := m.metrics.CronLabel(name)
	return m.crons.get(label, func() *share { return newShare(m.metrics.CronJobs, label) })
}

func (m *meters) ofQueue(name string) *share {
	return m.queues.get(name, func() *share { return newShare(m.metrics.QueueJobs, name) })
}

// cached holds what was made for each label.
type cached[T any] struct {
	mu      sync.RWMutex
	byLabel map[string]T
}

func (c *cached[T]) get(label string, create func() T) T {
	c.mu.RLock()
	known, ok := c.byLabel[label]
	c.mu.RUnlock()
	if ok {
		return known
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.byLabel[label]; ok {
		return known
	}
	if c.byLabel == nil {
		c.byLabel = map[string]T{}
	}
	made := create()
	c.byLabel[label] = made
	return made
}

func observeStarts(m *metrics.Metrics) func(waiting int, took time.Duration) {
	return func(waiting int, took time.Duration) {
		m.CommandStartsWaiting.Set(float64(waiting))
		m.CommandStartSeconds.Set(took.Seconds())
	}
}

// startAtZero creates every series of every kind before its first event.
func startAtZero(m *metrics.Metrics, kinds []string) {
	for _, kind := range kinds {
		m.JobEnqueued.WithLabelValues(kind)
		newMeter(m, kind)
	}
}
