package crons

import (
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/metrics"
)

const (
	// maxLabels is how many crons have series of their own.
	maxLabels = 1000
	// otherLabel is shared by the rest.
	otherLabel = "_other"
)

// verdicts are those that a leader gives.
var verdicts = []cronstore.Verdict{
	cronstore.Fired, cronstore.CaughtUp, cronstore.SkippedOverlap, cronstore.SkippedWindow,
	cronstore.SkippedLimit, cronstore.SkippedDST, cronstore.SkippedPaused, cronstore.SkippedExcluded, cronstore.Failed,
}

// meter counts ticks once they are committed.
type meter struct {
	metrics *metrics.Metrics
	labels  map[string]bool
}

func newMeter(m *metrics.Metrics) *meter { return &meter{metrics: m, labels: map[string]bool{}} }

// know starts the series of crons at 0.
func (m *meter) know(crons []cronstore.Upcoming) {
	for _, c := range crons {
		switch {
		case m.labels[c.Name] || m.labels[otherLabel] && len(m.labels) > maxLabels:
			continue
		case len(m.labels) < maxLabels:
			m.start(c.Name)
		default:
			m.start(otherLabel)
		}
	}
}

func (m *meter) start(label string) {
	m.labels[label] = true
	m.metrics.CronRuns.WithLabelValues(label)
	m.metrics.CronDelay.WithLabelValues(label)
	m.metrics.CronFailures.WithLabelValues(label)
	m.metrics.CronMissed.WithLabelValues(label)
	for _, verdict := range verdicts {
		m.metrics.CronTicks.WithLabelValues(label, string(verdict))
	}
}

func (m *meter) label(cron string) string {
	if m.labels[cron] {
		return cron
	}
	return otherLabel
}

// count takes in committed rows. now is the database's time.
func (m *meter) count(rows []cronstore.Tick, now time.Time) {
	for _, row := range rows {
		label, number := m.label(row.Cron), float64(row.Count)
		m.metrics.CronTicks.WithLabelValues(label, string(row.Verdict)).Add(number)
		if fires(row.Verdict) {
			m.metrics.CronRuns.WithLabelValues(label).Add(number)
			m.metrics.CronDelay.WithLabelValues(label).Observe(now.Sub(row.Tick).Seconds())
		}
		if row.Verdict == cronstore.SkippedWindow || row.Verdict == cronstore.SkippedLimit {
			m.metrics.CronMissed.WithLabelValues(label).Add(number)
		}
		if row.Verdict == cronstore.Failed {
			m.metrics.CronFailures.WithLabelValues(label).Add(number)
		}
	}
}
