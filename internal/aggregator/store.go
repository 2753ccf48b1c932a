package aggregator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/metrics"
)

// A restarted or dead node's old gauges are wrong at once, not only when they
// are old.
const reportsSQL = `
SELECT m.samples, m.at > $1 AND n.node_id IS NOT NULL
FROM forge_metrics_nodes m
LEFT JOIN forge_nodes n
    ON n.node_id = m.node_id AND n.incarnation = m.incarnation AND n.state IN ('active', 'draining')`

// Finished jobs are not counted: there may be millions, and no index counts
// them cheaply.
const queueDepthSQL = `
WITH depth AS (
    SELECT queue, state, count(*) AS jobs
    FROM river_job
    WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled')
    GROUP BY queue, state
)
SELECT queues.name, states.state::text, coalesce(depth.jobs, 0)
FROM (SELECT name FROM river_queue UNION SELECT queue FROM depth) AS queues (name)
CROSS JOIN unnest('{available,pending,retryable,running,scheduled}'::river_job_state[]) AS states (state)
LEFT JOIN depth ON depth.queue = queues.name AND depth.state = states.state`

const nodeCountSQL = `
SELECT states.state, count(n.node_id)
FROM unnest('{active,draining,left,dead}'::text[]) AS states (state)
LEFT JOIN forge_nodes n ON n.state = states.state
GROUP BY states.state`

// retiredNode is the node id of the row that holds what nodes counted that are
// gone. No node can have it.
const retiredNode = ""

const retireSQL = `
DELETE FROM forge_metrics_nodes m
WHERE m.node_id <> '' AND m.at < $1
  AND NOT EXISTS (
      SELECT FROM forge_nodes n
      WHERE n.node_id = m.node_id AND n.incarnation = m.incarnation AND n.state IN ('active', 'draining'))
RETURNING samples`

const saveRetiredSQL = `
INSERT INTO forge_metrics_nodes (node_id, incarnation, samples)
VALUES ('', '', $1)
ON CONFLICT (node_id) DO UPDATE SET at = clock_timestamp(), samples = excluded.samples`

const writeSQL = `
INSERT INTO forge_metrics_cluster (metric, labels, at, value, term)
SELECT metric, labels::jsonb, $4, value, $5
FROM unnest($1::text[], $2::text[], $3::float8[]) AS sums (metric, labels, value)
ON CONFLICT (metric, labels, at) DO UPDATE SET value = excluded.value, term = excluded.term`

// Every series is written at least once in fullInterval.
const latestSQL = `
SELECT DISTINCT ON (metric, labels) metric, labels, at, value, term
FROM forge_metrics_cluster
WHERE at >= (SELECT max(at) FROM forge_metrics_cluster) - 2 * $1::interval
ORDER BY metric, labels, at DESC`

const rangeSQL = `
SELECT metric, labels, at, value, term
FROM forge_metrics_cluster
WHERE metric = $1 AND at BETWEEN $2 AND $3
ORDER BY labels, at`

// Point is one sum of the cluster at one instant.
type Point struct {
	Metric string            `json:"metric"`
	Labels map[string]string `json:"labels"`
	At     time.Time         `json:"at"`
	Value  float64           `json:"value"`
	// Term of the aggregator's leader that wrote it.
	Term int64 `json:"term"`
}

// Queryer is what Latest and Range read through.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Latest returns the newest point of every series, by metric and labels. Its
// times say how old they are: nothing is written while no aggregator leads.
func Latest(ctx context.Context, db Queryer) ([]Point, error) {
	rows, err := db.Query(ctx, latestSQL, fullInterval)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's metrics: %w", err)
	}
	return points(rows)
}

// Range returns the points of one metric from one instant to another, series by
// series, oldest first. A series has a point where it changed, and one a minute.
func Range(ctx context.Context, db Queryer, metric string, from, to time.Time) ([]Point, error) {
	rows, err := db.Query(ctx, rangeSQL, metric, from, to)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's %s: %w", metric, err)
	}
	return points(rows)
}

func points(rows pgx.Rows) ([]Point, error) {
	points, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Point])
	if err != nil {
		return nil, fmt.Errorf("read the cluster's metrics: %w", err)
	}
	return points, nil
}

func readReports(ctx context.Context, tx pgx.Tx, freshAfter time.Time) ([]nodeReport, error) {
	rows, err := tx.Query(ctx, reportsSQL, freshAfter)
	if err != nil {
		return nil, fmt.Errorf("read the nodes' metrics: %w", err)
	}
	reports, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (nodeReport, error) {
		var node nodeReport
		err := row.Scan(&node.report, &node.fresh)
		return node, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the nodes' metrics: %w", err)
	}
	return reports, nil
}

// countCluster counts what no node can: the jobs and the nodes themselves.
func countCluster(ctx context.Context, tx pgx.Tx) ([]metrics.Sample, error) {
	rows, err := tx.Query(ctx, queueDepthSQL)
	if err != nil {
		return nil, fmt.Errorf("count the jobs: %w", err)
	}
	depths, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (metrics.Sample, error) {
		var queue, state string
		var jobs float64
		err := row.Scan(&queue, &state, &jobs)
		return metrics.Sample{
			Name: metrics.QueueDepthName, Labels: map[string]string{"queue": queue, "state": state}, Value: jobs,
		}, err
	})
	if err != nil {
		return nil, fmt.Errorf("count the jobs: %w", err)
	}
	rows, err = tx.Query(ctx, nodeCountSQL)
	if err != nil {
		return nil, fmt.Errorf("count the nodes: %w", err)
	}
	nodes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (metrics.Sample, error) {
		var state string
		var count float64
		err := row.Scan(&state, &count)
		return metrics.Sample{Name: metrics.NodeCountName, Labels: map[string]string{"state": state}, Value: count}, err
	})
	if err != nil {
		return nil, fmt.Errorf("count the nodes: %w", err)
	}
	return append(depths, nodes...), nil
}

// retire moves the counters of nodes that were last heard of before an instant
// to the row of the nodes that are gone.
func retire(ctx context.Context, tx pgx.Tx, before time.Time) error {
	rows, err := tx.Query(ctx, retireSQL, before)
	if err != nil {
		return fmt.Errorf("retire metrics: %w", err)
	}
	gone, err := pgx.CollectRows(rows, pgx.RowTo[report])
	if err != nil {
		return fmt.Errorf("retire metrics: %w", err)
	}
	if len(gone) == 0 {
		return nil
	}
	rows, err = tx.Query(ctx, previousSQL, retiredNode)
	if err != nil {
		return fmt.Errorf("read retired metrics: %w", err)
	}
	retired, err := pgx.CollectRows(rows, pgx.RowTo[report])
	if err != nil {
		return fmt.Errorf("read retired metrics: %w", err)
	}
	if _, err := tx.Exec(ctx, saveRetiredSQL, report{Base: counted(append(retired, gone...)...)}); err != nil {
		return fmt.Errorf("save retired metrics: %w", err)
	}
	return nil
}

func writeSums(ctx context.Context, tx pgx.Tx, samples []metrics.Sample, at time.Time, term int64) error {
	if len(samples) == 0 {
		return nil
	}
	names, labels := make([]string, len(samples)), make([]string, len(samples))
	values := make([]float64, len(samples))
	for i, sample := range samples {
		body, err := json.Marshal(sample.Labels)
		if err != nil {
			return fmt.Errorf("encode the labels of %s: %w", sample.Name, err)
		}
		if sample.Labels == nil {
			body = []byte("{}")
		}
		names[i], labels[i], values[i] = sample.Name, string(body), sample.Value
	}
	if _, err := tx.Exec(ctx, writeSQL, names, labels, values, at, term); err != nil {
		return fmt.Errorf("write the cluster's metrics: %w", err)
	}
	return nil
}
