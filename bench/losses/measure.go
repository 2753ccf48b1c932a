package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

const (
	nodes   = 3
	clients = 4 // that write to the server
	burners = 2 // for each processor
)

const (
	joinedSQL = `SELECT count(*) = $1 FROM forge_nodes WHERE state = 'active'`

	lossesSQL = `
SELECT count(*), coalesce(string_agg(DISTINCT end_reason, ', '), '-')
FROM forge_leader_history WHERE ended_at > $1`

	silenceSQL = `
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - renewed_at)), 0)::float8
FROM forge_leaders WHERE node_id IS NOT NULL`

	clockSQL = `SELECT clock_timestamp()`

	missedSQL = `SELECT count(*) FROM forge_cron_ticks WHERE verdict NOT IN ('fired', 'caught_up')`
)

// outcome is what a lease saw under load.
type outcome struct {
	lease   time.Duration
	losses  int
	reasons string
	silence time.Duration // the longest between two renewals
	unfired int
}

// settings are the same for each node.
func settings(lease time.Duration) string {
	return fmt.Sprintf(`
[cluster.leader_election]
lease_duration = "%dms"
check_interval = "%dms"
refresh_interval = "%dms"
[[crons]]
name = "second"
schedule = "@every 1s"
overlap = "allow"
catch_up = "all"
command = ["true"]
`, lease.Milliseconds(), (lease / 3).Milliseconds(), (lease / 4).Milliseconds())
}

// measure runs a cluster calmly until it has leaders, and then under load.
func measure(ctx context.Context, lease, length time.Duration) (o outcome, err error) {
	r, err := rig.New(ctx, "forge-losses", map[string]string{"max_connections": "200"})
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	url, pool, err := r.Database(ctx)
	if err != nil {
		return o, err
	}
	defer pool.Close()
	if err := startNodes(ctx, r, url, pool, lease); err != nil {
		return o, err
	}
	if _, err := pool.Exec(ctx, tableSQL); err != nil {
		return o, fmt.Errorf("make the burden's table: %w", err)
	}
	var began time.Time
	if err := pool.QueryRow(ctx, clockSQL).Scan(&began); err != nil {
		return o, fmt.Errorf("read the clock: %w", err)
	}
	if err := startLoad(r, url); err != nil {
		return o, err
	}
	o = outcome{lease: lease}
	if o.silence, err = listen(ctx, r, pool, time.Now().Add(length)); err != nil {
		return o, err
	}
	if err := pool.QueryRow(ctx, lossesSQL, began).Scan(&o.losses, &o.reasons); err != nil {
		return o, fmt.Errorf("count the losses: %w", err)
	}
	if err := pool.QueryRow(ctx, missedSQL).Scan(&o.unfired); err != nil {
		return o, fmt.Errorf("count the ticks: %w", err)
	}
	return o, nil
}

func startNodes(ctx context.Context, r *rig.Rig, url string, pool *pgxpool.Pool, lease time.Duration) error {
	for n := range nodes {
		if _, err := r.StartNode(fmt.Sprintf("n%d", n+1), url, settings(lease), partEnv+"=node"); err != nil {
			return err
		}
	}
	return rig.Await(ctx, "three nodes and their leaders", func(ctx context.Context) (bool, error) {
		if err := r.Alive(); err != nil {
			return false, err
		}
		var joined bool
		if err := pool.QueryRow(ctx, joinedSQL, nodes).Scan(&joined); err != nil {
			return false, err
		}
		led, err := rig.Led(ctx, pool)
		return joined && led, err
	})
}

func startLoad(r *rig.Rig, url string) error {
	parts := map[string]int{"burn": burners * runtime.NumCPU(), "sync": 1, "insert": clients}
	for part, count := range parts {
		for n := range count {
			id := fmt.Sprintf("%s-%d", part, n)
			if _, err := r.Start(id, partEnv+"="+part, urlEnv+"="+url, fileEnv+"="+filepath.Join(r.Dir, "synced")); err != nil {
				return err
			}
		}
	}
	return nil
}

// listen looks ten times a second how long ago the last renewal was.
func listen(ctx context.Context, r *rig.Rig, pool *pgxpool.Pool, until time.Time) (time.Duration, error) {
	var longest float64
	for time.Now().Before(until) {
		if err := rig.SleepUntil(ctx, time.Now().Add(100*time.Millisecond)); err != nil {
			return 0, err
		}
		if err := r.Alive(); err != nil {
			return 0, err
		}
		var silence float64
		if err := pool.QueryRow(ctx, silenceSQL).Scan(&silence); err != nil {
			return 0, fmt.Errorf("look at the renewals: %w", err)
		}
		longest = max(longest, silence)
	}
	return time.Duration(longest * float64(time.Second)), nil
}

func report(out io.Writer, o options, outcomes []outcome) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "lease\trenewed each\tunder load for\tlosses\tas\tlongest silence ms\tof the lease\tticks not fired\t")
	values := map[string]float64{}
	for _, r := range outcomes {
		share := r.silence.Seconds() / r.lease.Seconds()
		fmt.Fprintf(table, "%v\t%v\t%v\t%d\t%s\t%.0f\t%.0f %%\t%d\t\n", r.lease, r.lease/4, o.length, r.losses, r.reasons,
			rig.Milliseconds(r.silence), 100*share, r.unfired)
		values["losses_"+r.lease.String()] = float64(r.losses)
		values["longest_silence_ms_"+r.lease.String()] = rig.Round(rig.Milliseconds(r.silence))
		values["ticks_not_fired_"+r.lease.String()] = float64(r.unfired)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return rig.Result{Bench: "losses", Ratios: map[string]float64{}, Values: values, Settings: map[string]any{
		"nodes": nodes, "seconds": o.length.Seconds(), "machine": rig.Machine(), "go": runtime.Version(),
		"burners_per_cpu": burners, "writing_clients": clients,
	}}.Print(out)
}
