package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/migrations"
)

// nodeEnv makes this program the node that is measured.
const nodeEnv = "BENCH_NODE"

// Jobs of ten hours that ended in every way, and some that nobody here works: those
// stay. One of the queues has a few old jobs, and one none.
const fillJobsSQL = `
INSERT INTO river_job (kind, queue, priority, state, args, metadata, attempt, max_attempts, attempted_by, errors,
                       created_at, scheduled_at, attempted_at, finalized_at)
SELECT 'kind-' || i % 20, CASE WHEN i <= 3 THEN 'rare' WHEN i % 10 = 0 THEN 'mail' ELSE 'default' END, 1 + i % 4, state,
       jsonb_build_object('number', i, 'customer', md5(i::text)),
       CASE WHEN i % 3 = 0 THEN jsonb_build_object('forge:cron', 'cron-' || lpad((i % $2)::text, 6, '0'), 'forge:tick', at) ELSE '{}' END,
       CASE WHEN waits THEN 0 ELSE 1 END, 1, CASE WHEN NOT waits THEN ARRAY['filler-0000000000000000'] END,
       CASE WHEN state = 'discarded' THEN ARRAY[jsonb_build_object('at', at, 'attempt', 1, 'error', 'exit status ' || i % 7)] END,
       at, CASE WHEN state = 'scheduled' THEN now() + interval '1 day' ELSE at END,
       CASE WHEN NOT waits THEN at END, CASE WHEN NOT waits THEN at + interval '120 ms' END
FROM (SELECT i, now() - interval '10 hours' * (1 - i / $1::float8) AS at, state, state IN ('available', 'scheduled') AS waits
      FROM generate_series(1, $1) AS i,
           LATERAL (SELECT CASE WHEN i % 200 = 7 THEN 'discarded' WHEN i % 200 = 8 THEN 'cancelled' WHEN i % 500 = 9 THEN 'scheduled'
                                WHEN i % 1000 = 11 THEN 'available' ELSE 'completed' END::river_job_state AS state) AS s) AS job`

const fillQueueSQL = `
INSERT INTO river_queue (name, created_at, metadata, updated_at) VALUES ('nothing', now(), '{}', now())`

const ledBySQL = `SELECT count(*) = 3 FROM forge_leaders WHERE node_id = $1 AND lease_until > clock_timestamp()`

// Ticks of the last hours of every cron.
const fillTicksSQL = `
INSERT INTO forge_cron_ticks (cron, tick, verdict, term, node_id, recorded_at, lateness_ms)
SELECT name, date_trunc('hour', now()) - n * interval '1 hour', 'fired', 1, 'filler', now() - n * interval '1 hour', 3
FROM forge_crons, generate_series(1, 20) AS n`

// What the metrics aggregator keeps of attempts by default, for as many keys as it keeps: 51
// crons, 20 kinds, 50 nodes and 3 queues.
const fillSharesSQL = `
INSERT INTO forge_metrics_shares (step, dimension, at, key, attempts, failures, wait, took)
SELECT step, dimension, at, key, number * step / 60, number * step / 6000,
       array_fill(number::integer, ARRAY[$1::integer]), array_fill(number::integer, ARRAY[$1::integer])
FROM (VALUES (60, interval '24 hours'), (300, '7 days'), (3600, '90 days')) AS steps (step, kept),
     generate_series(date_bin(step * interval '1 s', now(), '2000-01-01') - kept, now() - step * interval '1 s', step * interval '1 s') AS at,
     (SELECT 'cron' AS dimension, 'cron-' || lpad(i::text, 6, '0') AS key, i AS number FROM generate_series(1, 50) AS i
      UNION ALL VALUES ('cron', '_other', 500), ('queue', 'default', 900), ('queue', 'mail', 100), ('queue', 'rare', 1)
      UNION ALL SELECT 'kind', 'kind-' || i, 50 FROM generate_series(0, 19) AS i
      UNION ALL SELECT 'node', CASE i WHEN 1 THEN $2 ELSE 'gone-' || i END, 100 - i FROM generate_series(1, 50) AS i) AS keys`

// The gauges without which charts have no data.
const fillGaugesSQL = `
INSERT INTO forge_metrics_rollups (step, metric, labels, at, covered, value, least, greatest, last)
SELECT step, metric, labels::jsonb, at, step, 3, 2, 4, 3
FROM (VALUES (60, interval '24 hours'), (300, '7 days'), (3600, '90 days')) AS steps (step, kept),
     generate_series(date_bin(step * interval '1 s', now(), '2000-01-01') - kept, now() - step * interval '1 s', step * interval '1 s') AS at,
     (VALUES ('forge_nodes', '{"state": "active"}'), ('forge_node_slots_used', jsonb_build_object('node_id', $1::text)::text)) AS gauges (metric, labels)`

// filledNode is the id of the node that is measured.
const filledNode = "filled"

// fill starts a node on a database with much in it. With a directory for the data it fills
// the database once.
func fill(ctx context.Context, o options, say func(string, ...any)) (url string, end func() error, err error) {
	say("starting PostgreSQL")
	var r *rig.Rig
	if o.data == "" {
		r, err = rig.New(ctx, "forge-dashboard", nil)
	} else {
		r, err = rig.NewOn(ctx, "forge-dashboard", filepath.Join(o.data, "postgres"))
	}
	if err != nil {
		return "", nil, err
	}
	if url, err = startOn(ctx, r, o, say); err != nil {
		return "", nil, errors.Join(err, r.Close())
	}
	return url, r.Close, nil
}

// startOn fills the database unless it is filled, and returns the address of a node on it.
func startOn(ctx context.Context, r *rig.Rig, o options, say func(string, ...any)) (url string, err error) {
	was, err := readKept(o.data)
	if err != nil {
		return "", err
	}
	var database string
	var pool *pgxpool.Pool
	if was.Filled {
		database, pool, err = r.Reopen(ctx)
	} else {
		database, pool, err = r.Database(ctx)
	}
	if err != nil {
		return "", err
	}
	defer pool.Close()
	if err := migrations.New(pool, slog.New(slog.DiscardHandler)).Up(ctx); err != nil {
		return "", err
	}
	if !was.Filled {
		if err := fillDatabase(ctx, pool, database, o, say); err != nil {
			return "", err
		}
		say("starting a node, which is killed, for the page of a failover")
		first, err := startNode(ctx, r, pool, "first", database)
		if err != nil {
			return "", err
		}
		first.Kill()
		if err := (kept{Filled: true, Jobs: o.jobs, Crons: o.crons}).write(o.data); err != nil {
			return "", err
		}
	}
	say("starting a node")
	node, err := startNode(ctx, r, pool, filledNode, database)
	if err != nil {
		return "", err
	}
	err = pool.QueryRow(ctx, `SELECT api_url FROM forge_nodes WHERE node_id = $1`, node.ID).Scan(&url)
	return url, err
}

// startNode starts a node and waits until it leads every role.
func startNode(ctx context.Context, r *rig.Rig, pool *pgxpool.Pool, id, database string) (*rig.Process, error) {
	node, err := r.StartNode(id, database, "", nodeEnv+"=1")
	if err != nil {
		return nil, err
	}
	return node, rig.Await(ctx, "a node that leads every role", func(ctx context.Context) (led bool, err error) {
		err = pool.QueryRow(ctx, ledBySQL, id).Scan(&led)
		return led, errors.Join(err, node.Alive())
	})
}

func fillDatabase(ctx context.Context, pool *pgxpool.Pool, database string, o options, say func(string, ...any)) error {
	say("defining %d crons", o.crons)
	if err := defineCrons(ctx, pool, database, o.crons); err != nil {
		return err
	}
	say("adding %d jobs", o.jobs)
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{fillJobsSQL, []any{o.jobs, max(o.crons, 1)}},
		{fillQueueSQL, nil},
		{fillTicksSQL, nil},
		{fillSharesSQL, []any{metrics.BucketCount, filledNode}},
		{fillGaugesSQL, []any{filledNode}},
		{`VACUUM (ANALYZE)`, nil},
		{`CHECKPOINT`, nil},
	} {
		if _, err := pool.Exec(ctx, step.sql, step.args...); err != nil {
			return fmt.Errorf("fill the database: %w", err)
		}
	}
	return nil
}

func defineCrons(ctx context.Context, pool *pgxpool.Pool, database string, count int) error {
	crons := make(map[string]cronstore.Spec, count)
	for i := range count {
		crons[fmt.Sprintf("cron-%06d", i)] = cronstore.Spec{
			Job: fmt.Sprintf("kind-%d", i%20), Schedule: fmt.Sprintf("%d %d * * *", i%60, i/60%24), Timezone: "UTC",
		}
	}
	return rig.DefineCrons(ctx, pool, database, crons)
}

// settle lets the node's leaders do what the fill has left them.
const settle = 5 * time.Second
