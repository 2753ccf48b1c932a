package roles

import (
	"fmt"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// renewalEventInterval is how often the renewals of a lease are recorded as an event. One
// event per renewal would be 115,000 events per day and role; metrics count each renewal.
const renewalEventInterval = time.Hour

// renewalSum summarizes the confirmed renewals of a term since the last event.
type renewalSum struct {
	since, last time.Time // since the last event; when the last renewal was sent
	count       int
	longest     time.Duration // between two renewals
}

// add adds a confirmed renewal. A renewal that carried an event begins a new sum.
func (r *renewalSum) add(sent time.Time) {
	if r.due(sent) {
		*r = renewalSum{since: sent, last: r.last}
	}
	r.count++
	r.longest = max(r.longest, sent.Sub(r.last))
	r.last = sent
}

func (r *renewalSum) due(now time.Time) bool { return now.Sub(r.since) >= renewalEventInterval }

// eventData returns the data of the event as JSON if an event is due, and "" otherwise.
func (r *renewalSum) eventData(now time.Time) string {
	if !r.due(now) {
		return ""
	}
	return fmt.Sprintf(`{"renewals": %d, "over_s": %d, "longest_ms": %d}`,
		r.count, int(now.Sub(r.since).Seconds()), r.longest.Milliseconds())
}

// countRenewals counts the renewals by result.
func (es *Elections) countRenewals(held []leaderstore.Held, still []leaderstore.Renewed, err error) {
	for _, h := range held {
		result := "renewed"
		switch {
		case err != nil:
			result = "error"
		case !slices.ContainsFunc(still, func(r leaderstore.Renewed) bool { return r.Role == h.Role }):
			result = "refused"
		}
		es.opts.Metrics.LeaderRenewals.WithLabelValues(h.Role, es.opts.NodeID, result).Inc()
	}
}
