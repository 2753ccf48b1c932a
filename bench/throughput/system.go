package main

import (
	"context"
	"fmt"
	"log/slog"
	neturl "net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/forge-scheduler/forge/bench/internal/graphile"
	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/migrations"
)

const (
	// fetchCooldown is River's least time between two fetches when it is tuned:
	// forge's own.
	fetchCooldown = 2 * time.Millisecond
	// riverWorkers is what River's README begins with; there is no default.
	riverWorkers = 100
	// poolSize is forge's default. A tuned River has it too; the default of pgx
	// is 4 or one for each processor.
	poolSize = "16"
)

// lookEvery is how often the table is asked what is left while jobs are worked.
const lookEvery = time.Second

const (
	// A backlog of scheduled and finished jobs, in turns, as if of the next month
	// and of the last hours.
	rowsSQL = `
INSERT INTO river_job (state, kind, args, max_attempts, priority, queue, metadata, scheduled_at, created_at,
                       attempt, attempted_at, attempted_by, finalized_at)
SELECT CASE WHEN ahead THEN 'scheduled' ELSE 'completed' END::river_job_state,
       'noop', jsonb_build_object('n', n), 25, 1, 'default', '{}',
       CASE WHEN ahead THEN now() + interval '1 hour' + n * interval '1 second' ELSE past END, now() - interval '4 hours',
       CASE WHEN ahead THEN 0 ELSE 1 END, CASE WHEN NOT ahead THEN past END,
       CASE WHEN NOT ahead THEN ARRAY['past'] END, CASE WHEN NOT ahead THEN past END
FROM generate_series(1, 2 * $1::int) AS n
CROSS JOIN LATERAL (SELECT n % 2 = 0 AS ahead, now() - interval '3 hours' + n * interval '1 millisecond' AS past) AS row`

	newestSQL = `SELECT coalesce(max(id), 0) FROM river_job`
	workedSQL = `SELECT count(*) FROM river_job WHERE id > $1 AND state = 'completed'`
	walSQL    = `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`
)

// system is one of those that are measured.
type system struct {
	name string
	// table holds its jobs. left asks whether one is not finished.
	table, left string
	// keeps says that finished jobs stay in the table.
	keeps   bool
	prepare func(ctx context.Context, b *bench, url string, pool *pgxpool.Pool) error
	insert  func(ctx context.Context, f *field, tx pgx.Tx, jobs int) error
	start   func(b *bench, f *field, tuned bool, r role) (*rig.Process, error)
}

const riverLeftSQL = `SELECT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'running', 'retryable'))`

var (
	forgeSystem = &system{
		name: "forge", table: "river_job", left: riverLeftSQL, keeps: true, insert: insertRiver, start: startNode,
		prepare: func(ctx context.Context, _ *bench, _ string, pool *pgxpool.Pool) error {
			return migrations.New(pool, slog.New(slog.DiscardHandler)).Up(ctx)
		},
	}
	riverSystem = &system{
		name: "river", table: "river_job", left: riverLeftSQL, keeps: true, insert: insertRiver, start: startNode,
		prepare: func(ctx context.Context, _ *bench, _ string, pool *pgxpool.Pool) error {
			return rig.MigrateRiver(ctx, pool)
		},
	}
	graphileSystem = &system{
		name: "graphile", table: "graphile_worker._private_jobs", left: `SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)`,
		insert: insertGraphile, start: startGraphile,
		prepare: func(ctx context.Context, b *bench, url string, _ *pgxpool.Pool) (err error) {
			if b.graphile, err = graphile.Install(ctx); err != nil {
				return err
			}
			return b.graphile.Prepare(ctx, url)
		},
	}
)

// field is a system on a database.
type field struct {
	system *system
	url    string
	pool   *pgxpool.Pool
	client client // inserts only; nil for graphile-worker
	// full says that there are rows to be kept.
	full bool
}

func (b *bench) field(ctx context.Context, s *system) (*field, error) {
	url, pool, err := b.rig.Database(ctx)
	if err != nil {
		return nil, err
	}
	f := &field{system: s, url: url, pool: pool}
	if err = s.prepare(ctx, b, url, pool); err == nil && s.keeps {
		f.client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{})
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("prepare %s: %w", s.name, err)
	}
	return f, nil
}

// fill makes a backlog of that many scheduled and as many finished jobs.
func (f *field) fill(ctx context.Context, rows int) error {
	if _, err := f.pool.Exec(ctx, rowsSQL, rows); err != nil {
		return fmt.Errorf("fill %s's table: %w", f.system.name, err)
	}
	if _, err := f.pool.Exec(ctx, "VACUUM ANALYZE river_job"); err != nil {
		return fmt.Errorf("vacuum %s's table: %w", f.system.name, err)
	}
	f.full = true
	return nil
}

// clear makes each turn begin alike, for the server too.
func (b *bench) clear(ctx context.Context, f *field) error {
	if !f.full {
		if _, err := f.pool.Exec(ctx, "TRUNCATE "+f.system.table); err != nil {
			return fmt.Errorf("clear %s's table: %w", f.system.name, err)
		}
	}
	return b.rig.Checkpoint(ctx)
}

// insert adds jobs that nobody sees until the transaction commits. The planner
// knows of them then: of rows that are younger than its statistics it knows
// nothing, and both systems suffer.
func (f *field) insert(ctx context.Context, jobs int) (pgx.Tx, error) {
	tx, err := f.pool.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin to insert: %w", err)
	}
	if err = f.system.insert(ctx, f, tx, jobs); err == nil {
		_, err = tx.Exec(ctx, "ANALYZE "+f.system.table)
	}
	if err != nil {
		_ = tx.Rollback(ctx) // the first error says more
		return nil, fmt.Errorf("insert jobs: %w", err)
	}
	return tx, nil
}

func insertRiver(ctx context.Context, f *field, tx pgx.Tx, jobs int) error {
	for done := 0; done < jobs; done += batch {
		params := make([]river.InsertManyParams, min(batch, jobs-done))
		for i := range params {
			params[i].Args = noop{N: done + i}
		}
		if _, err := f.client.InsertManyFastTx(ctx, tx, params); err != nil {
			return err
		}
	}
	return nil
}

func insertGraphile(ctx context.Context, _ *field, tx pgx.Tx, jobs int) error {
	for done := 0; done < jobs; done += batch {
		payloads := make([]graphile.Payload, min(batch, jobs-done))
		for i := range payloads {
			payloads[i].N = done + i
		}
		if err := graphile.Add(ctx, tx, payloads); err != nil {
			return err
		}
	}
	return nil
}

// drained waits until no job is left that is not finished. It begins to look in
// earnest once the processes have worked as many as they should.
func (f *field) drained(ctx context.Context, worked func() int64, goal int64) error {
	look := time.Now().Add(lookEvery)
	for {
		if worked() >= goal || time.Now().After(look) {
			var left bool
			if err := f.pool.QueryRow(ctx, f.system.left).Scan(&left); err != nil {
				return fmt.Errorf("look for jobs that are left: %w", err)
			}
			if !left {
				return nil
			}
			look = time.Now().Add(lookEvery)
		}
		if err := rig.SleepUntil(ctx, time.Now().Add(countEvery)); err != nil {
			return fmt.Errorf("wait for the last job: %w", err)
		}
	}
}

// worked counts the finished jobs after id. A system that keeps none is asked through the
// counts of its processes.
func (f *field) worked(ctx context.Context, id int64, counted int) (jobs int, err error) {
	if !f.system.keeps {
		return counted, nil
	}
	if err := f.pool.QueryRow(ctx, workedSQL, id).Scan(&jobs); err != nil {
		return 0, fmt.Errorf("count the finished jobs: %w", err)
	}
	return jobs, nil
}

func (f *field) newest(ctx context.Context) (id int64, err error) {
	if !f.system.keeps {
		return 0, nil
	}
	if err := f.pool.QueryRow(ctx, newestSQL).Scan(&id); err != nil {
		return 0, fmt.Errorf("find the newest job: %w", err)
	}
	return id, nil
}

func (f *field) wal(ctx context.Context) (bytes float64, err error) {
	if err := f.pool.QueryRow(ctx, walSQL).Scan(&bytes); err != nil {
		return 0, fmt.Errorf("read the position of the WAL: %w", err)
	}
	return bytes, nil
}

// pooled gives a River client as many connections as forge has.
func pooled(url string) (string, error) {
	address, err := neturl.Parse(url)
	if err != nil {
		return "", fmt.Errorf("parse the database's address: %w", err)
	}
	query := address.Query()
	query.Set("pool_max_conns", poolSize)
	address.RawQuery = query.Encode()
	return address.String(), nil
}
