package nodestore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// Only a recent report of the running process counts.
const slowStartsSQL = `
SELECT node_id, waiting, took
FROM forge_nodes
JOIN forge_metrics_nodes m USING (node_id, incarnation),
LATERAL (
    SELECT coalesce(max((sample -> 'v')::float8) FILTER (WHERE sample ->> 'n' = 'forge_command_starts_waiting'), 0) AS waiting,
           coalesce(max((sample -> 'v')::float8) FILTER (WHERE sample ->> 'n' = 'forge_command_start_seconds'), 0) AS took
    FROM jsonb_path_query(m.samples, '$.samples[*] ? (@.n == "forge_command_starts_waiting" || @.n == "forge_command_start_seconds")') AS sample
) AS starts
WHERE m.at > clock_timestamp() - 3 * m.every AND waiting > 0 AND took >= $1`

// SlowStart is the duration from which on a node whose commands wait to be started takes
// no more jobs.
const SlowStart = time.Second

// Starts describes a node that starts commands slowly.
type Starts struct {
	// Waiting is the number of claimed commands that wait to be started.
	Waiting int
	// Took is the recent duration of a start.
	Took time.Duration
}

// SlowStarts returns the nodes that take no jobs because commands wait to be started
// there and starts are slow, by node id. It uses the nodes' last reports.
func (s *Store) SlowStarts(ctx context.Context) (map[string]Starts, error) {
	nodes := map[string]Starts{}
	_, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (id string, err error) {
		var waiting, took float64
		if err := row.Scan(&id, &waiting, &took); err != nil {
			return "", err
		}
		nodes[id] = Starts{Waiting: int(waiting), Took: time.Duration(took * float64(time.Second))}
		return id, nil
	}, slowStartsSQL, SlowStart.Seconds())
	if err != nil {
		return nil, fmt.Errorf("read which nodes start commands slowly: %w", err)
	}
	return nodes, nil
}
