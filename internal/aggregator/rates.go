package aggregator

import (
	"context"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Rollups have no node label, so the counts of a node are read from its last
// report, with the time of the node's clock. A report of an earlier process says
// nothing about the leader.
const ratesSQL = `
SELECT labels ->> 'role', '', coalesce(sum(value) FILTER (WHERE labels ->> 'result' = 'renewed'), 0), sum(value),
       now() - interval '1 hour'
FROM forge_metrics_rollups
WHERE step = $1 AND metric = 'forge_leader_renewals_total' AND at >= now() - interval '1 hour'
GROUP BY labels ->> 'role'
UNION ALL
SELECT '', m.node_id, coalesce(sum((sample -> 'v')::float8) FILTER (WHERE sample -> 'l' ->> 'result' = 'success'), 0),
       sum((sample -> 'v')::float8),
       date_trunc('second', m.at - ((m.samples ->> 'clock')::timestamptz - (m.samples ->> 'began')::timestamptz))
FROM forge_metrics_nodes m, jsonb_path_query(m.samples, '$.samples[*] ? (@.n == "forge_node_heartbeats_total")') AS sample
WHERE m.samples ? 'began'
  AND (m.node_id, m.incarnation) IN (SELECT node_id, incarnation FROM forge_leaders WHERE lease_until > clock_timestamp())
GROUP BY m.node_id`

// Rate is the share of attempts that succeeded.
type Rate struct {
	Succeeded int64 `json:"succeeded"`
	Attempts  int64 `json:"attempts"`
	// Since is when counting began, by the database's clock.
	Since time.Time `json:"since"`
}

// String formats the rate, such as "99.8 % of 1,200". It rounds down: 100 % means
// all.
func (r Rate) String() string {
	percent := float64(1000*r.Succeeded/max(r.Attempts, 1)) / 10
	return strconv.FormatFloat(percent, 'f', -1, 64) + " % of " + humanize.Comma(r.Attempts)
}

// LeaderRates holds the success rates of a role and of its leader's node. A rate is
// nil until the first attempts are recorded.
type LeaderRates struct {
	// Renewals is the rate of renewals of the role's lease in the last hour, by all
	// its leaders.
	Renewals *Rate `json:"renewals,omitempty"`
	// Heartbeats is the rate of heartbeats of the leader's node since its process
	// started.
	Heartbeats *Rate `json:"heartbeats,omitempty"`
}

// Rates holds the success rates of all roles and of the nodes that lead one.
type Rates struct {
	// Renewals is by role, Heartbeats by node.
	Renewals, Heartbeats map[string]Rate
}

// Of returns the rates of a role and of the node that leads it.
func (r Rates) Of(role, node string) (of LeaderRates) {
	if rate, ok := r.Renewals[role]; ok {
		of.Renewals = &rate
	}
	if rate, ok := r.Heartbeats[node]; ok {
		of.Heartbeats = &rate
	}
	return of
}

// Rates returns the recorded rates. The newest attempts are missing: rollups are
// a minute long, and nodes report at each metrics.scrape_interval.
func (s *Store) Rates(ctx context.Context) (Rates, error) {
	read := Rates{Renewals: map[string]Rate{}, Heartbeats: map[string]Rate{}}
	var (
		role, node          string
		succeeded, attempts float64
		since               time.Time
	)
	targets := []any{&role, &node, &succeeded, &attempts, &since}
	err := postgres.ForEach(ctx, s.db, "read the rates of renewals and heartbeats", targets, func() error {
		rate := Rate{Succeeded: int64(succeeded), Attempts: int64(attempts), Since: since}
		if node != "" {
			read.Heartbeats[node] = rate
		} else {
			read.Renewals[role] = rate
		}
		return nil
	}, ratesSQL, Minute.seconds())
	return read, err
}
