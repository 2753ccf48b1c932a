package compactor

import (
	"time"
)

// removes returns the names of everything that a pass may remove.
func (c *Compactor) removes() []string {
	names := []string{strayLogs}
	keep := c.retention()
	for _, table := range parted(keep) {
		names = append(names, table.name)
	}
	for _, sweep := range sweeps(keep) {
		names = append(names, sweep.name)
	}
	return names
}

// measure updates the metrics after the pass was recorded: its results and the
// sizes of the tables.
func (p *pass) measure(took time.Duration, tables []Table) {
	m := p.opts.Metrics
	if m == nil {
		return
	}
	result := "complete"
	if len(p.record.Failed) > 0 {
		result = "incomplete"
	}
	m.CompactorPasses.WithLabelValues(result).Inc()
	for what, rows := range p.record.Removed {
		m.CompactorRemoved.WithLabelValues(what).Add(float64(rows))
	}
	m.CompactorChunks.Add(float64(p.record.Chunks))
	m.CompactorTextBytes.Add(float64(p.record.TextBytes))
	m.CompactorPackBytes.Add(float64(p.record.PackBytes))
	m.CompactorPassSeconds.WithLabelValues().Observe(took.Seconds())
	m.CompactorPassedAt.WithLabelValues().SetToCurrentTime()
	for _, table := range tables {
		m.TableBytes.WithLabelValues(table.Name).Set(float64(table.Bytes))
	}
}

// forgetMeasures removes the gauges, which the next leader sets.
func (c *Compactor) forgetMeasures() {
	if c.opts.Metrics != nil {
		c.opts.Metrics.CompactorPassedAt.Reset()
		c.opts.Metrics.TableBytes.Reset()
	}
}
