package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/forge-scheduler/forge/bench/internal/graphile"
	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/migrations"
)

const (
	// slots are the jobs that a process of forge or River runs at once.
	slots = 200
	// fetchCooldown is River's least time between two fetches: forge's own.
	fetchCooldown = 2 * time.Millisecond
)

// system is one of those that are measured.
type system struct {
	name    string
	crons   bool
	prepare func(ctx context.Context, b *bench, f *field) error
	start   func(b *bench, f *field, id, out string) error
	insert  func(ctx context.Context, f *field, tx pgx.Tx, jobs []noop) error
}

var (
	forgeSystem    = &system{name: "forge", crons: true, prepare: prepareForge, start: startNode, insert: insertRiver}
	riverSystem    = &system{name: "river", prepare: prepareRiver, start: startNode, insert: insertRiver}
	graphileSystem = &system{name: "graphile", prepare: prepareGraphile, start: startGraphile, insert: insertGraphile}
)

// field is a system on a database.
type field struct {
	system *system
	url    string
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // inserts only; nil for graphile-worker
	outs   []string              // of the processes
}

func prepareForge(ctx context.Context, b *bench, f *field) error {
	if err := migrations.New(f.pool, slog.New(slog.DiscardHandler)).Up(ctx); err != nil {
		return err
	}
	crons := make(map[string]cronstore.Spec, b.crons)
	for cron := range b.crons {
		crons[fmt.Sprintf("cron-%03d", cron)] = cronstore.Spec{
			Schedule: "@every 1s", Timezone: "UTC", Job: noop{}.Kind(), Args: []byte(`{}`),
			Queue: "default", Priority: 1, MaxAttempts: 25, Overlap: "allow",
		}
	}
	return rig.DefineCrons(ctx, f.pool, f.url, crons)
}

func prepareRiver(ctx context.Context, _ *bench, f *field) error {
	return rig.MigrateRiver(ctx, f.pool)
}

func prepareGraphile(ctx context.Context, b *bench, f *field) (err error) {
	if b.graphile, err = graphile.Install(ctx); err != nil {
		return err
	}
	return b.graphile.Prepare(ctx, f.url)
}

func (b *bench) field(ctx context.Context, s *system) (*field, error) {
	url, pool, err := b.rig.Database(ctx)
	if err != nil {
		return nil, err
	}
	f := &field{system: s, url: url, pool: pool}
	if err = s.prepare(ctx, b, f); err == nil && s != graphileSystem {
		// A client that inserts notifies at most once in its cooldown, as one that fetches asks.
		f.client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{FetchCooldown: fetchCooldown})
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("prepare: %w", err)
	}
	return f, nil
}

// start starts the processes.
func (b *bench) start(f *field) error {
	for n := range b.nodes {
		id := fmt.Sprintf("%s-%d", f.system.name, n+1)
		out := filepath.Join(b.rig.Dir, id+".starts")
		if err := f.system.start(b, f, id, out); err != nil {
			return err
		}
		f.outs = append(f.outs, out)
	}
	return nil
}

func startNode(b *bench, f *field, id, out string) error {
	body, err := json.Marshal(role{f.system.name, id, out, f.url})
	if err != nil {
		return fmt.Errorf("say what to be: %w", err)
	}
	_, err = b.rig.StartNode(id, f.url, fmt.Sprintf("slots = %d", slots), roleEnv+"="+string(body))
	return err
}

func startGraphile(b *bench, f *field, id, out string) error {
	env, err := graphile.Role{URL: f.url, Worker: graphile.Tuned(), Out: out, Starts: true}.Env()
	if err != nil {
		return err
	}
	_, err = b.rig.StartLine(id, b.graphile.Line, env)
	return err
}

func insertRiver(ctx context.Context, f *field, tx pgx.Tx, jobs []noop) error {
	params := make([]river.InsertManyParams, len(jobs))
	for i, job := range jobs {
		params[i].Args = job
	}
	_, err := f.client.InsertManyFastTx(ctx, tx, params)
	return err
}

func insertGraphile(ctx context.Context, _ *field, tx pgx.Tx, jobs []noop) error {
	payloads := make([]graphile.Payload, len(jobs))
	for i, job := range jobs {
		payloads[i] = graphile.Payload{N: int(job.N), Due: job.Due}
	}
	return graphile.Add(ctx, tx, payloads)
}
