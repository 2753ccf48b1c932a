package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/migrations"
)

// partTimeout bounds one backlog: it has failed then.
const partTimeout = 10 * time.Minute

const (
	// insertSQL makes $1 jobs of queue $2 that take $5 ms, with $3 keys of the prefix $4.
	insertSQL = `
INSERT INTO river_job (kind, queue, args, max_attempts, metadata)
SELECT 'job', $2, jsonb_build_object('k', $4::text || n % $3::int, 'ms', $5::int), 25, '{}'
FROM generate_series(1, $1::int) AS n`
	notifySQL = `SELECT pg_notify(current_schema() || '.river_insert', json_build_object('queue', $1::text)::text)`
	leftSQL   = `SELECT EXISTS (SELECT FROM river_job WHERE queue = $1 AND finalized_at IS NULL)`
	readySQL  = `SELECT count(*) = 1 FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE relname LIKE 'forge\_fair\_%' AND indisvalid`

	// overSQL returns by how many the running jobs of a key exceeded the limit $2, at most. An
	// attempt that ends at the instant at which another starts is over.
	overSQL = `
SELECT greatest(coalesce(max(running), 0) - $2, 0)
FROM (
    SELECT sum(change) OVER (PARTITION BY k ORDER BY at, change) AS running
    FROM (
        SELECT args ->> 'k' AS k, attempted_at AS at, 1 AS change FROM river_job WHERE queue = $1
        UNION ALL
        SELECT args ->> 'k', finalized_at, -1 FROM river_job WHERE queue = $1) AS changes) AS counts`

	waitsSQL = `
SELECT (percentile_disc(0.99) WITHIN GROUP (ORDER BY attempted_at - scheduled_at) FILTER (WHERE args ->> 'k' <> 'big0'))::interval,
       (max(attempted_at - scheduled_at) FILTER (WHERE args ->> 'k' = 'big0'))::interval
FROM river_job WHERE queue = 'fair'`
)

// queuesConfig has the queues of the bench.
var queuesConfig = fmt.Sprintf(`
[queues.plain]
[queues.keyed]
limit_per_key = { key = "args.k", limit = %d }
[queues.fair]
fair_by = "args.k"
`, keyLimit)

// bench is one run: a PostgreSQL, the nodes on it and what was measured.
type bench struct {
	options
	rig    *rig.Rig
	result rig.Result
	say    func(format string, args ...any)
}

func newBench(ctx context.Context, o options, progress io.Writer) (*bench, error) {
	b := &bench{options: o, say: rig.Progress(progress)}
	b.say("starting PostgreSQL")
	var err error
	b.rig, err = rig.New(ctx, "forge-limits", map[string]string{"max_connections": "200", "max_wal_size": "8GB", "checkpoint_timeout": "1h"})
	if err != nil {
		return nil, err
	}
	b.result = rig.Result{Bench: "limits", Ratios: map[string]float64{}, Values: map[string]float64{}, Settings: map[string]any{
		"nodes": nodes, "trials": o.trials, "jobs": o.jobs, "keys": o.keys, "limit_per_key": keyLimit, "slots": o.slots,
		"backlog": o.backlog, "singles": o.singles, "service": o.service.String(), "load_average": loadAverage(),
		"waiting": o.waiting, "waiting_keys": o.waitingKeys, "waiting_service": o.waitingService.String(), "waiting_workers": o.waitingWorkers,
	}}
	if err := b.rig.Describe(ctx, b.result.Settings); err != nil {
		return nil, errors.Join(err, b.rig.Close())
	}
	return b, nil
}

// start starts the nodes on a database of their own.
func (b *bench) start(ctx context.Context, slots int, queues ...string) (*pgxpool.Pool, error) {
	url, pool, err := b.rig.Database(ctx)
	if err != nil {
		return nil, err
	}
	if err := migrations.New(pool, slog.New(slog.DiscardHandler)).Up(ctx); err != nil {
		return nil, err
	}
	for i := range nodes {
		if _, err := b.rig.StartNode(fmt.Sprint("n", i), url, fmt.Sprintf("slots = %d\n%s%s", slots, queuesConfig, strings.Join(queues, "")), outEnv+"=1"); err != nil {
			return nil, err
		}
	}
	return pool, rig.Await(ctx, "leaders and the index of the fair queue", func(ctx context.Context) (ready bool, err error) {
		if err = b.rig.Alive(); err == nil {
			err = pool.QueryRow(ctx, readySQL).Scan(&ready)
		}
		return ready, err
	})
}

// insert adds jobs that the nodes see at once, and returns when that was.
func insert(ctx context.Context, pool *pgxpool.Pool, jobs int, queue string, keys int, prefix string, takes time.Duration) (began time.Time, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertSQL, jobs, queue, keys, prefix, takes.Milliseconds()); err != nil {
			return err
		}
		if jobs > 1 { // of rows that are younger than its statistics the planner knows nothing
			if _, err := tx.Exec(ctx, "ANALYZE river_job"); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, notifySQL, queue)
		began = time.Now()
		return err
	})
	if err != nil {
		return began, fmt.Errorf("insert jobs: %w", err)
	}
	return began, nil
}

// drained waits until all jobs of a queue have ended.
func (b *bench) drained(ctx context.Context, pool *pgxpool.Pool, queue string) error {
	return rig.Await(ctx, "the jobs of "+queue, func(ctx context.Context) (bool, error) {
		if err := b.rig.Alive(); err != nil {
			return false, err
		}
		var left bool
		err := pool.QueryRow(ctx, leftSQL, queue).Scan(&left)
		return !left, err
	})
}

// keyed compares a queue with limits by key to one without.
func (b *bench) keyed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	defer b.rig.KillAll()
	pool, err := b.start(ctx, b.slots)
	if err != nil {
		return err
	}
	rates := map[string][]float64{}
	for trial := range b.trials + 1 { // the first is a warm-up
		for _, queue := range []string{"plain", "keyed"} {
			b.say("%s: %d jobs", queue, b.jobs)
			rate, err := b.work(ctx, pool, queue)
			if err != nil {
				return err
			}
			if trial > 0 {
				rates[queue] = append(rates[queue], rate)
			}
		}
	}
	ratios := make([]float64, b.trials)
	for i := range ratios {
		ratios[i] = rates["keyed"][i] / rates["plain"][i]
	}
	b.result.Ratios["keyed"] = rig.Round(median(ratios))
	b.result.Values["plain_per_s"], b.result.Values["keyed_per_s"] = rig.Round(median(rates["plain"])), rig.Round(median(rates["keyed"]))
	return b.rig.StopAll(ctx)
}

// work returns how many jobs a second a backlog was worked with.
func (b *bench) work(ctx context.Context, pool *pgxpool.Pool, queue string) (perSecond float64, err error) {
	if _, err := pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return 0, fmt.Errorf("clear the table: %w", err)
	}
	if err := b.rig.Checkpoint(ctx); err != nil {
		return 0, err
	}
	began, err := insert(ctx, pool, b.jobs, queue, b.keys, "k", 0)
	if err != nil {
		return 0, err
	}
	if err := b.drained(ctx, pool, queue); err != nil {
		return 0, err
	}
	perSecond = float64(b.jobs) / time.Since(began).Seconds()
	if queue == "keyed" {
		var over float64
		if err := pool.QueryRow(ctx, overSQL, queue, keyLimit).Scan(&over); err != nil {
			return 0, fmt.Errorf("judge the limit: %w", err)
		}
		b.result.Values["over_limit"] = max(b.result.Values["over_limit"], over)
	}
	return perSecond, nil
}

// fair measures what the backlog of a tenant costs others.
func (b *bench) fair(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	defer b.rig.KillAll()
	pool, err := b.start(ctx, b.slots/10)
	if err != nil {
		return err
	}
	b.say("fair: %d jobs of one tenant, %d of others", b.backlog, b.singles)
	if _, err := insert(ctx, pool, b.backlog, "fair", 1, "big", b.service); err != nil {
		return err
	}
	length := time.Duration(b.backlog) * b.service / time.Duration(nodes*b.slots/10)
	for i, next := 0, time.Now(); i < b.singles; i++ {
		next = next.Add(length / time.Duration(2*b.singles))
		if err := rig.SleepUntil(ctx, next); err != nil {
			return err
		}
		if _, err := insert(ctx, pool, 1, "fair", 1, fmt.Sprintf("small%d-", i), b.service); err != nil {
			return err
		}
	}
	if err := b.drained(ctx, pool, "fair"); err != nil {
		return err
	}
	var small, big time.Duration
	if err := pool.QueryRow(ctx, waitsSQL).Scan(&small, &big); err != nil {
		return fmt.Errorf("read the waits: %w", err)
	}
	b.result.Values["small_tenant_p99_ms"], b.result.Values["big_wait_s"] = rig.Round(rig.Milliseconds(small)), rig.Round(big.Seconds())
	return b.rig.StopAll(ctx)
}

// print writes the table and the result.
func (b *bench) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	v := b.result.Values
	fmt.Fprintln(table, "measure\tvalue\t")
	fmt.Fprintf(table, "without limits, jobs/s\t%.0f\t\n", v["plain_per_s"])
	fmt.Fprintf(table, "with limits by key, jobs/s\t%.0f\t\n", v["keyed_per_s"])
	fmt.Fprintf(table, "with over without\t%.2f\t\n", b.result.Ratios["keyed"])
	fmt.Fprintf(table, "jobs over a limit\t%.0f\t\n", v["over_limit"])
	fmt.Fprintf(table, "wait of a small tenant, p99 ms\t%.0f\t\n", v["small_tenant_p99_ms"])
	fmt.Fprintf(table, "longest wait of the big tenant, s\t%.1f\t\n", v["big_wait_s"])
	b.printWaiting(table)
	if err := table.Flush(); err != nil {
		return err
	}
	return b.result.Print(out)
}

// median is the middle value, the higher one of two.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
