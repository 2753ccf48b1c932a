package metrics

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Lead describes a node's leadership of a role. The zero value means that the node
// does not lead.
type Lead struct {
	// Since is when the node acquired the role.
	Since time.Time
	// TrustedUntil is when the node stops trusting its leadership unless it renews
	// it.
	TrustedUntil time.Time
}

// SetLead sets the lead from which the gauges of a role are computed at each
// scrape.
func (m *Metrics) SetLead(role, nodeID string, lead Lead) {
	m.leads.mu.Lock()
	defer m.leads.mu.Unlock()
	m.leads.byRole[leadKey{role, nodeID}] = lead
}

type leadKey struct{ role, nodeID string }

// leads holds the leads of a node by role.
type leads struct {
	mu     sync.Mutex
	byRole map[leadKey]Lead
}

func newLeads(f *factory) *leads {
	l := &leads{byRole: map[leadKey]Lead{}}
	l.gauge(f, LeaderIsLeaderName, "1 while this node leads the role, 0 otherwise.", func(Lead, time.Time) float64 { return 1 })
	l.gauge(f, "forge_leader_tenure_seconds", "Seconds since this node acquired the role; 0 while it does not lead.",
		func(lead Lead, now time.Time) float64 { return now.Sub(lead.Since).Seconds() })
	l.gauge(f, "forge_leader_lease_remaining_seconds", "Seconds until this node stops trusting its lease unless it renews the lease; 0 while it does not lead.",
		func(lead Lead, now time.Time) float64 { return lead.TrustedUntil.Sub(now).Seconds() })
	return l
}

// gauge registers a gauge with the value of each trusted lead, and 0 for other
// leads.
func (l *leads) gauge(f *factory, name, help string, value func(lead Lead, now time.Time) float64) {
	labels := []string{"role", "node_id"}
	register(f, "gauge", name, help, labels, leadGauge{l, prometheus.NewDesc(name, help, labels, nil), value})
}

// add starts the series of a role at 0 if they do not exist.
func (l *leads) add(role, nodeID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := leadKey{role, nodeID}
	if _, known := l.byRole[key]; !known {
		l.byRole[key] = Lead{}
	}
}

// leadGauge implements prometheus.Collector.
type leadGauge struct {
	*leads

	desc  *prometheus.Desc
	value func(lead Lead, now time.Time) float64
}

func (g leadGauge) Describe(out chan<- *prometheus.Desc) { out <- g.desc }

func (g leadGauge) Collect(out chan<- prometheus.Metric) {
	g.mu.Lock()
	byRole := maps.Clone(g.byRole) // a scrape must not block elections
	g.mu.Unlock()
	now := time.Now()
	for key, lead := range byRole {
		value := 0.0
		if now.Before(lead.TrustedUntil) {
			value = g.value(lead, now)
		}
		out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, key.role, key.nodeID)
	}
}
