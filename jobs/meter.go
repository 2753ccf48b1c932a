package jobs

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// meter contains the metrics of one kind.
type meter struct {
	started, lines, dropped prometheus.Counter
	running                 prometheus.Gauge
	wait, took              prometheus.Observer
	finished                map[string]prometheus.Counter // by outcome
}

// newMeter creates every series of the kind before its first event.
func newMeter(m *metrics.Metrics, kind string) *meter {
	made := &meter{
		started:  m.JobStarted.WithLabelValues(kind),
		running:  m.JobRunning.WithLabelValues(kind),
		took:     m.JobDuration.WithLabelValues(kind),
		wait:     m.JobWait.WithLabelValues(kind),
		lines:    m.JobOutputLines.WithLabelValues(kind),
		dropped:  m.JobOutputDropped.WithLabelValues(kind),
		finished: map[string]prometheus.Counter{},
	}
	for _, outcome := range []string{
		jobstore.OutcomeCompleted, jobstore.OutcomeFailed, jobstore.OutcomeCancelled,
		jobstore.OutcomeTimedOut, jobstore.OutcomeInterrupted, jobstore.OutcomeSnoozed, outcomeFenced,
	} {
		made.finished[outcome] = m.JobFinished.WithLabelValues(kind, outcome)
	}
	return made
}

// meters caches the meter of each kind. To find a series by its labels takes longer than
// anything else in the recording of a short attempt.
type meters struct {
	metrics *metrics.Metrics

	mu     sync.RWMutex
	byKind map[string]*meter
}

func newMeters(m *metrics.Metrics) *meters { return &meters{metrics: m, byKind: map[string]*meter{}} }

func (m *meters) of(kind string) *meter {
	m.mu.RLock()
	known := m.byKind[kind]
	m.mu.RUnlock()
	if known != nil {
		return known
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byKind[kind] == nil {
		m.byKind[kind] = newMeter(m.metrics, kind)
	}
	return m.byKind[kind]
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
