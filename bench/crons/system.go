package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/migrations"
)

// system is one of the two that are measured.
type system struct {
	name    string
	prepare func(ctx context.Context, f *field) error
	// leaderSQL names the leader, unless it is $1.
	leaderSQL string
	// countSQL counts of the ticks in ($1, $2] those that are on record, those
	// that have a job, the jobs, and the ticks that were to overlap an earlier run.
	countSQL string
	// drain is how long the last ticks have to start, on a machine that is busy.
	drain time.Duration
	// insertsSQL lists which cron's tick was inserted when.
	insertsSQL string
	// fires is when a tick should start.
	fires func(w workload, cron int64, tick time.Time) (time.Time, error)
}

var forgeSystem = &system{
	name:    "forge",
	drain:   30 * time.Second,
	prepare: prepareForge,
	leaderSQL: `SELECT node_id FROM forge_leaders
		WHERE role = 'scheduler' AND node_id <> $1 AND lease_until > clock_timestamp()`,
	countSQL: `
		WITH run AS (
			SELECT metadata ->> 'forge:cron' AS cron, (metadata ->> 'forge:tick')::timestamptz AS tick
			FROM river_job WHERE metadata ? 'forge:tick' AND created_at > $1::timestamptz - interval '10 seconds' -- inserted ahead
		), counted AS (SELECT * FROM run WHERE tick > $1 AND tick <= $2)
		SELECT (SELECT coalesce(sum(tick_count), 0)::bigint FROM forge_cron_ticks WHERE tick > $1 AND tick <= $2),
		       (SELECT count(*) FROM (SELECT DISTINCT cron, tick FROM counted) AS d), (SELECT count(*) FROM counted),
		       (SELECT count(*) FROM forge_cron_ticks WHERE tick > $1 AND tick <= $2 AND verdict = 'skipped_overlap')`,
	insertsSQL: `
		SELECT right(cron, 6)::bigint, tick, pg_xact_commit_timestamp(xmin)
		FROM forge_cron_ticks WHERE tick > $1 AND tick <= $2`,
	fires: jittered,
}

var riverSystem = &system{
	name:      "river",
	drain:     10 * time.Second, // what it has missed by then does not come
	prepare:   prepareRiver,
	leaderSQL: `SELECT leader_id FROM river_leader WHERE leader_id <> $1 AND expires_at > clock_timestamp()`,
	countSQL: `
		SELECT d.n, d.n, (SELECT count(*) FROM river_job WHERE scheduled_at > $1 AND scheduled_at <= $2), 0
		FROM (SELECT count(*) AS n FROM (
			SELECT DISTINCT args, scheduled_at FROM river_job WHERE scheduled_at > $1 AND scheduled_at <= $2
		) AS d) AS d`,
	insertsSQL: `
		SELECT (args ->> 'cron')::bigint, scheduled_at, greatest(created_at, scheduled_at)
		FROM river_job WHERE scheduled_at > $1 AND scheduled_at <= $2`,
	fires: func(_ workload, _ int64, tick time.Time) (time.Time, error) { return tick, nil },
}

func prepareForge(ctx context.Context, f *field) error {
	if err := migrations.New(f.pool, slog.New(slog.DiscardHandler)).Up(ctx); err != nil {
		return err
	}
	crons := make(map[string]cronstore.Spec, f.workload.Crons)
	for cron := range f.workload.Crons {
		crons[cronName(cron)] = f.workload.spec(cron)
	}
	return rig.DefineCrons(ctx, f.pool, f.url, crons)
}

func prepareRiver(ctx context.Context, f *field) error { return rig.MigrateRiver(ctx, f.pool) }

func (s *system) count(ctx context.Context, f *field, from, until time.Time, out *outcome) error {
	var recorded, ran, jobs int64
	if err := f.pool.QueryRow(ctx, s.countSQL, from, until).Scan(&recorded, &ran, &jobs, &out.skipped); err != nil {
		return fmt.Errorf("count the ticks of %s: %w", s.name, err)
	}
	out.missed, out.ran, out.doubled = out.expected-recorded, ran, jobs-ran
	return nil
}

func (s *system) inserts(ctx context.Context, f *field, from, until time.Time, out *outcome) error {
	rows, err := f.pool.Query(ctx, s.insertsSQL, from, until)
	if err != nil {
		return fmt.Errorf("read the inserts of %s: %w", s.name, err)
	}
	var (
		cron     int64
		tick, at time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&cron, &tick, &at}, func() error {
		due, err := s.fires(f.workload, cron, tick)
		out.insert = append(out.insert, at.Sub(due))
		return err
	})
	if err != nil {
		return fmt.Errorf("read the inserts of %s: %w", s.name, err)
	}
	return nil
}

// jittered is the tick with the delay that forge gives it.
func jittered(w workload, cron int64, tick time.Time) (time.Time, error) {
	if !w.Within {
		return tick, nil
	}
	timeline, err := w.spec(int(cron)).Timeline(cronName(int(cron)))
	if err != nil {
		return tick, err
	}
	due, ok := timeline.At(tick)
	if !ok {
		return tick, fmt.Errorf("%s is not due at %s", cronName(int(cron)), tick)
	}
	return due.FiresAt, nil
}
