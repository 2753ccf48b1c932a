package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// lines are what is sampled, in the order in which they are shown.
var lines = []string{"memory_mib", "goroutines", "descriptors", "connections", "tables_mib", "rows_dead", "jobs_inserted"}

// titles say it to people. The first three are of all nodes together.
var titles = map[string]string{
	"memory_mib": "memory of the nodes, MiB", "goroutines": "goroutines", "descriptors": "open descriptors",
	"connections": "connections to PostgreSQL", "tables_mib": "tables with indexes, MiB", "rows_dead": "dead rows",
	"jobs_inserted": "jobs inserted so far",
}

// sample is what there was at one time.
type sample struct {
	at     time.Duration // since the first
	values map[string]float64
	tables map[string]float64 // the size of each with its indexes, in MiB
}

const databaseSQL = `
SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'forge:%'),
       (SELECT sum(pg_total_relation_size(relid)) / 1048576 FROM pg_stat_user_tables)::float8,
       (SELECT sum(n_dead_tup) FROM pg_stat_user_tables)::float8,
       (SELECT last_value FROM river_job_id_seq)::float8`

// Partitions count as their table.
const tablesSQL = `
SELECT coalesce(pg_partition_root(relid), relid)::regclass::text, (sum(pg_total_relation_size(relid)) / 1048576.0)::float8
FROM pg_stat_user_tables
GROUP BY 1`

// watch samples until the time is over.
func (c *cluster) watch(ctx context.Context, o options, say func(string, ...any)) ([]sample, error) {
	var samples []sample
	began := time.Now()
	for next := began; time.Since(began) < o.length; next = next.Add(o.every) {
		if err := rig.SleepUntil(ctx, next); err != nil {
			return nil, err
		}
		values, err := c.look(ctx)
		if err != nil {
			return nil, err
		}
		tables, err := c.tables(ctx)
		if err != nil {
			return nil, err
		}
		samples = append(samples, sample{time.Since(began), values, tables})
		if len(samples)%12 == 0 {
			say("%s: %.0f MiB, %.0f goroutines, %.0f descriptors, %.0f connections, tables %.1f MiB, %.0f jobs",
				time.Since(began).Round(time.Second), values["memory_mib"], values["goroutines"], values["descriptors"],
				values["connections"], values["tables_mib"], values["jobs_inserted"])
		}
	}
	return samples, nil
}

func (c *cluster) look(ctx context.Context) (map[string]float64, error) {
	values := map[string]float64{}
	for _, n := range c.nodes {
		if err := n.Alive(); err != nil {
			return nil, err
		}
		memory, err := rig.Memory(n.PID())
		if err != nil {
			return nil, err
		}
		descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.PID()))
		if err != nil {
			return nil, fmt.Errorf("count the descriptors of %s: %w", n.ID, err)
		}
		goroutines, err := n.goroutines(ctx)
		if err != nil {
			return nil, err
		}
		values["memory_mib"] += float64(memory) / (1 << 20)
		values["descriptors"] += float64(len(descriptors))
		values["goroutines"] += goroutines
	}
	var connections, tables, dead, jobs float64
	if err := c.pool.QueryRow(ctx, databaseSQL).Scan(&connections, &tables, &dead, &jobs); err != nil {
		return nil, fmt.Errorf("look at the database: %w", err)
	}
	values["connections"], values["tables_mib"], values["rows_dead"], values["jobs_inserted"] = connections, tables, dead, jobs
	return values, nil
}

// tables is the size of each table by its name.
func (c *cluster) tables(ctx context.Context) (map[string]float64, error) {
	rows, err := c.pool.Query(ctx, tablesSQL)
	if err != nil {
		return nil, fmt.Errorf("look at the tables: %w", err)
	}
	sizes := map[string]float64{}
	var name string
	var size float64
	if _, err := pgx.ForEachRow(rows, []any{&name, &size}, func() error {
		sizes[name] = size
		return nil
	}); err != nil {
		return nil, fmt.Errorf("look at the tables: %w", err)
	}
	return sizes, nil
}
