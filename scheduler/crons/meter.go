package crons

import (
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/metrics"
)

// meter updates the metrics of committed ticks.
type meter struct {
	metrics *metrics.Metrics
}

func newMeter(m *metrics.Metrics) *meter { return &meter{metrics: m} }

// initSeries sets the series of crons to 0.
func (m *meter) initSeries(crons []cronstore.Upcoming) {
	names := make([]string, len(crons))
	for i, c := range crons {
		names[i] = c.Name
	}
	m.metrics.InitCrons(names)
	for _, name := range names {
		m.metrics.CronDelay.WithLabelValues(m.metrics.CronLabel(name))
	}
}

// count adds committed rows to the metrics. now is the database's time.
func (m *meter) count(rows []cronstore.Tick, now time.Time) {
	for _, row := range rows {
		label, number := m.metrics.CronLabel(row.Cron), float64(row.Count)
		m.metrics.CronTicks.WithLabelValues(label, string(row.Verdict)).Add(number)
		if row.Verdict.Fires() {
			m.metrics.CronRuns.WithLabelValues(label).Add(number)
			m.metrics.CronDelay.WithLabelValues(label).Observe(row.Late(now).Seconds())
		}
		if row.Verdict == cronstore.SkippedWindow || row.Verdict == cronstore.SkippedLimit {
			m.metrics.CronMissed.WithLabelValues(label).Add(number)
		}
		if row.Verdict == cronstore.Failed {
			m.metrics.CronFailures.WithLabelValues(label).Add(number)
		}
	}
}
