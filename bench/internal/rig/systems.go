package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/devcluster"
)

const ledSQL = `SELECT count(*) = 3 FROM forge_leaders WHERE node_id IS NOT NULL AND lease_until > clock_timestamp()`

// configEnv holds the configuration of the forge node that a process is.
const configEnv = "BENCH_CONFIG"

// StartNode runs this program again with what RunForge needs: the defaults, on an
// address of its own. The settings go on in the section [node].
func (r *Rig) StartNode(id, url, settings string, env ...string) (*Process, error) {
	listen, err := devcluster.FindPort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("[database]\nurl = %q\n[http]\nlisten = %q\n[node]\nid = %q\n%s", url, listen, id, settings)
	return r.Start(id, append(env, configEnv+"="+config)...)
}

// Use does something with a node's client once that works. The node goes on until
// its own context ends, and ends with an error of Use. It may be nil.
type Use func(ctx context.Context, client *river.Client[pgx.Tx]) error

// RunForge is a node with the configuration of StartNode, until ctx ends.
func RunForge(ctx context.Context, use Use, options ...forge.Option) error {
	cfg, err := forge.ParseConfig("bench", os.Getenv(configEnv))
	if err != nil {
		return err
	}
	node, err := forge.New(cfg, options...)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return node.Run(ctx) })
	if use != nil {
		group.Go(func() error {
			select {
			case <-node.Ready():
				return use(ctx, node.Client())
			case <-ctx.Done():
				return nil
			}
		})
	}
	return group.Wait()
}

// Led says whether every role has a leader.
func Led(ctx context.Context, pool *pgxpool.Pool) (led bool, err error) {
	err = pool.QueryRow(ctx, ledSQL).Scan(&led)
	return led, err
}

// RunRiver is a client of the peer, until ctx ends. It logs to stderr.
func RunRiver(ctx context.Context, url string, config *river.Config, use Use) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	config.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start the client: %w", err)
	}
	if use != nil {
		err = use(ctx, client)
	}
	if err == nil {
		<-ctx.Done()
	}
	return errors.Join(err, client.Stop(context.WithoutCancel(ctx)))
}

// MigrateRiver makes the peer's tables.
func MigrateRiver(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return fmt.Errorf("migrate River's database: %w", err)
	}
	return nil
}

// DefineCrons applies crons under the hash of the nodes' file, so that they take them
// for what it says: a file holds no cron for a worker of a Go program, and not a
// hundred thousand either. What a cron does not say is forge's default.
func DefineCrons(ctx context.Context, pool *pgxpool.Pool, database string, crons map[string]cronstore.Spec) error {
	cfg, err := forge.ParseConfig("bench", fmt.Sprintf("[database]\nurl = %q", database))
	if err != nil {
		return err
	}
	_, hash, err := cfg.ClusterSections()
	if err != nil {
		return err
	}
	defaults := cfg.CronDefaults
	for name, spec := range crons {
		spec.Overlap = cmp.Or(spec.Overlap, defaults.Overlap)
		spec.CatchUp, spec.CatchUpMax, spec.CatchUpSpan = string(defaults.CatchUp), defaults.CatchUpLimit, defaults.CatchUpWindow
		spec.DSTMissing, spec.DSTRepeated = defaults.DSTMissing, defaults.DSTRepeated
		crons[name] = spec
	}
	_, err = cronstore.New(pool).Apply(ctx, cronstore.Applied{Hash: hash, NodeID: "bench", Crons: crons}, false)
	return err
}
