package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/alerting"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/migrations"
	"github.com/forge-scheduler/forge/roles"
)

// defaultListen is the address of the example's first node.
const defaultListen = "127.0.0.1:8080"

func (a *app) devCommand() *cobra.Command {
	var opts devcluster.Options
	var log logFlags
	cmd := &cobra.Command{
		Use: "dev", Short: "Run a cluster on this machine: PostgreSQL, nodes, crons, dashboard", Args: cobra.NoArgs,
		Long: "dev starts its own PostgreSQL, migrates it, and runs nodes as processes on\n" +
			"this machine. Ctrl-C stops everything; the data is kept for the next time.\n" +
			"Kill a leader with kill -9 and watch another node take over.",
		Example: "  forge dev --nodes 3",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := log.logger(a); err != nil {
				return err
			}
			opts.LogFormat, opts.Args = log.format, log.serveArgs
			return a.dev(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&opts.Nodes, "nodes", 1, "how many node processes")
	flags.StringVar(&opts.DataDir, "data-dir", "", "where PostgreSQL's data is kept (default .forge)")
	flags.StringVar(&opts.Listen, "listen", defaultListen, "address of the first node; the others take the ports after it")
	log.register(cmd)
	return cmd
}

// serveArgs returns the arguments of a node, which logs from this level on.
func (f *logFlags) serveArgs(n devcluster.Node) []string {
	return append(devcluster.ServeArgs(n), "--log-level", f.level)
}

func (a *app) dev(ctx context.Context, opts devcluster.Options) error {
	if opts.Nodes < 1 || opts.Nodes > 100 {
		return usageError(fmt.Errorf("--nodes %d: want 1 to 100", opts.Nodes))
	}
	if err := checkListen(opts.Listen); err != nil {
		return usageError(err)
	}
	path, example, err := a.devConfig(&opts)
	if err != nil {
		return err
	}
	opts.ConfigPath, opts.Color = path, a.colors()
	opts.Stdout, opts.Stderr = a.out, a.err
	var cfg *config.Config
	opts.Prepare = func(ctx context.Context, url string) (err error) {
		if example != "" {
			if err := os.WriteFile(path, []byte(example), 0o644); err != nil { //nolint:gosec // an example, no secrets
				return err
			}
		}
		cfg, err = a.prepare(ctx, path, url)
		return err
	}
	opts.TLS = func() bool { return cfg.HTTP.ByTLS() }
	opts.Leaders = func(ctx context.Context, url string) ([]devcluster.Leader, error) {
		return currentLeaders(ctx, cfg, url)
	}
	return devcluster.Run(ctx, opts)
}

// checkListen rejects an address that the nodes would reject, before PostgreSQL is started. Port 0
// means any port.
func checkListen(listen string) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen %q: want HOST:PORT such as 127.0.0.1:8080", listen)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("--listen %q: want a port from 0 to 65535", listen)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--listen %q: not a loopback address; want one such as 127.0.0.1:%s", listen, port)
	}
	return nil
}

// devConfig returns the path of the configuration that all nodes read. Without a file in the
// working directory it is that of the data directory, which example replaces once no other cluster
// runs there; example is empty if somebody has edited that file.
func (a *app) devConfig(opts *devcluster.Options) (path, example string, err error) {
	_, report, err := config.Load(a.configPath, config.LoadOptions{JudgeAlert: alerting.New().Judge})
	switch {
	case err == nil:
		a.warn(report)
		path, _ = a.configFile()
		return path, "", nil
	case !errors.Is(err, config.ErrNotFound) || a.fileNamed():
		return "", "", configError(err)
	}
	if opts.DataDir == "" {
		if opts.DataDir, err = devcluster.DefaultDataDir(); err != nil {
			return "", "", err
		}
	}
	path = filepath.Join(opts.DataDir, config.DefaultPath)
	if err := os.MkdirAll(opts.DataDir, 0o755); err != nil { //nolint:gosec // PostgreSQL's own user must pass
		return "", "", err
	}
	found, err := os.ReadFile(path) //nolint:gosec // the directory that the user named
	switch {
	case err == nil && !isExample(string(found)):
		_, err = fmt.Fprintf(a.err, "no forge.toml here: running %s as it is\n", path)
		return path, "", err
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return "", "", err
	}
	_, err = fmt.Fprintf(a.err, "no forge.toml here: running the example, %s (forge init writes your own)\n", path)
	return path, exampleAt(opts.Listen), err
}

// isExample reports whether a file is the example with any address of the first node.
func isExample(text string) bool {
	_, rest, _ := strings.Cut(text, `"http://`)
	listen, _, _ := strings.Cut(rest, "/")
	return listen != "" && text == exampleAt(listen)
}

// exampleAt returns the example with the first node's address, which one of its crons requests.
func exampleAt(listen string) string {
	if _, port, err := net.SplitHostPort(listen); err != nil || port == "0" {
		return forge.Example
	}
	return strings.ReplaceAll(forge.Example, defaultListen, listen)
}

// prepare migrates the database and puts the file's crons in force, even if an earlier run had
// another file.
func (a *app) prepare(ctx context.Context, path, url string) (*config.Config, error) {
	environ := append(os.Environ(), "FORGE_DATABASE_URL="+url)
	cfg, _, err := config.Load(path, config.LoadOptions{Environ: func() []string { return environ }})
	if err != nil {
		return nil, configError(err)
	}
	return cfg, connected(ctx, cfg, func(ctx context.Context, pool *pgxpool.Pool) error {
		if err := postgres.EnsureSchema(ctx, pool, cfg.Database.Schema); err != nil {
			return err
		}
		if err := migrations.New(pool, discard()).Up(ctx); err != nil {
			return err
		}
		outcome, err := forge.ApplyFrom(ctx, pool, cfg, forge.Origin{By: "cli:" + whoAmI(), File: path}, func(forge.Review) error { return nil })
		if err == nil && len(outcome.Removed) > 0 {
			_, err = fmt.Fprintf(a.err, "warning: %s removes %d crons of the run before: %s\n", path, len(outcome.Removed), cronstore.NameSome(outcome.Removed))
		}
		return err
	})
}

// currentLeaders reads the leader of each role that the nodes may lead, for the banner.
func currentLeaders(ctx context.Context, cfg *config.Config, url string) ([]devcluster.Leader, error) {
	pool, err := postgres.NewPool(ctx, postgres.PoolOptions{URL: url, Schema: cfg.Database.Schema, ApplicationName: "forge-dev"})
	if err != nil {
		return nil, err
	}
	defer postgres.ClosePool(pool)
	found, err := leaderstore.New(pool).Leaders(ctx)
	if err != nil {
		return nil, err
	}
	var leaders []devcluster.Leader
	for _, role := range roles.All() {
		if !slices.Contains(cfg.Node.Roles, string(role)) {
			continue
		}
		leader := devcluster.Leader{Role: string(role)}
		for _, l := range found {
			if l.Role == leader.Role && l.Leads() {
				leader.NodeID, leader.Term = l.NodeID, l.Term
			}
		}
		leaders = append(leaders, leader)
	}
	return leaders, nil
}
