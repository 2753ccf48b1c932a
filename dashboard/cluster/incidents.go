package cluster

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/incident"
)

// Incidents reports on changes of leaders.
type Incidents interface {
	// Read returns incident.ErrNotFound if there is no such term. Term 0 is the newest one.
	Read(ctx context.Context, role string, term int64) (incident.Incident, error)
}

const (
	// keepFresh is how long a report on a recent change is kept, keepSettled one that changes
	// only when retention removes what it is made from.
	keepFresh, keepSettled = time.Second, time.Minute
	// settledAfter is the time after the election within which a report still grows.
	settledAfter = 5 * time.Minute
	// keptIncidents bounds the reports that are kept.
	keptIncidents = 100
)

type incidentKey struct {
	role string
	term int64
}

type keptIncident struct {
	report incident.Incident
	until  time.Time
}

// incidentCache shares the reports among pages and the API.
type incidentCache struct {
	read func(ctx context.Context, role string, term int64) (incident.Incident, error)

	mu   sync.Mutex
	kept map[incidentKey]keptIncident
}

func newIncidentCache(source Incidents) *incidentCache {
	return &incidentCache{read: source.Read, kept: map[incidentKey]keptIncident{}}
}

// Get returns the report on a term, or on the newest one for term 0.
func (c *incidentCache) Get(ctx context.Context, role string, term int64) (incident.Incident, error) {
	key := incidentKey{role, term}
	c.mu.Lock()
	kept, found := c.kept[key]
	c.mu.Unlock()
	if found && time.Now().Before(kept.until) {
		return kept.report, nil
	}
	began := time.Now()
	report, err := c.read(ctx, role, term)
	if err != nil {
		return report, err
	}
	keep := keepFresh
	if term != 0 && report.Settled(settledAfter) {
		keep = keepSettled
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= keptIncidents {
		clear(c.kept)
	}
	end := time.Now()
	c.kept[key] = keptIncident{report, end.Add(max(keep, 20*end.Sub(began)))} // as Cache does
	return report, nil
}

// ParseTerm returns the number of a term in an address; 0 for latest.
func ParseTerm(text string) (int64, error) {
	if text == "latest" {
		return 0, nil
	}
	term, err := strconv.ParseInt(text, 10, 64)
	if err != nil || term < 1 {
		return 0, incident.ErrNotFound
	}
	return term, nil
}
