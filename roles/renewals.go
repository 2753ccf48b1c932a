package roles

import (
	"fmt"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// noteEvery is how often the renewals of a role's lease are recorded as an event. Each
// of them would be 115,000 events a day and role; their rates are metrics.
const noteEvery = time.Hour

// renewals sums up the confirmed renewals of a term since the last event.
type renewals struct {
	since, last time.Time // since the event before; when the last renewal was sent
	count       int
	longest     time.Duration // between two
}

// add takes a confirmed renewal and when it was sent. One that carried an event begins
// the next sum.
func (r *renewals) add(sent time.Time) {
	if r.due(sent) {
		*r = renewals{since: sent, last: r.last}
	}
	r.count++
	r.longest = max(r.longest, sent.Sub(r.last))
	r.last = sent
}

func (r *renewals) due(now time.Time) bool { return now.Sub(r.since) >= noteEvery }

// note is the event's data, as JSON, when one is due, and else empty.
func (r *renewals) note(now time.Time) string {
	if !r.due(now) {
		return ""
	}
	return fmt.Sprintf(`{"renewals": %d, "over_s": %d, "longest_ms": %d}`,
		r.count, int(now.Sub(r.since).Seconds()), r.longest.Milliseconds())
}

// countRenewals counts the terms that were to be renewed, by what became of that.
func (c *Campaign) countRenewals(held []leaderstore.Held, still []leaderstore.Renewed, err error) {
	for _, h := range held {
		result := "renewed"
		switch {
		case err != nil:
			result = "error"
		case !slices.ContainsFunc(still, func(r leaderstore.Renewed) bool { return r.Role == h.Role }):
			result = "refused"
		}
		c.opts.Metrics.LeaderRenewals.WithLabelValues(h.Role, c.opts.NodeID, result).Inc()
	}
}
