package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/dbpool"
	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/grants"
)

// load reads the configuration and prints its warnings.
func (a *app) load() (*config.Config, error) { return a.loadWith(config.LoadOptions{}) }

func (a *app) loadWith(opts config.LoadOptions) (*config.Config, error) {
	cfg, report, err := a.loadReport(opts)
	if err != nil {
		return nil, configError(err)
	}
	a.warn(report)
	return cfg, nil
}

// loadFile reads the configuration for a command that is about the file itself: there
// must be one, and it must not be empty.
func (a *app) loadFile(command string) (*config.Config, error) {
	cfg, report, err := config.Load(a.configPath, config.LoadOptions{JudgeAlert: alerts.Judge})
	switch {
	case errors.Is(err, config.ErrNotFound):
		return nil, configError(fmt.Errorf("forge %s needs a configuration file, and there is none: %s", command, a.searched()))
	case err != nil:
		return nil, configError(err)
	case report.Empty:
		path, _ := a.configFile()
		return nil, configError(fmt.Errorf("%s: the file is empty, and forge %s does not take that for a wish to remove everything", path, command))
	}
	a.warn(report)
	return cfg, nil
}

// searched names the places where the configuration was looked for, in order.
func (a *app) searched() string {
	if a.configPath != "" {
		return fmt.Sprintf("--config names %s, which does not exist", absolute(a.configPath))
	}
	if named := os.Getenv("FORGE_CONFIG"); named != "" {
		return fmt.Sprintf("--config is not given, and FORGE_CONFIG names %s, which does not exist", absolute(named))
	}
	return fmt.Sprintf("--config is not given, FORGE_CONFIG is not set, and %s does not exist", absolute(config.DefaultPath))
}

func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// loadReport leaves the warnings to the caller. Without a file the defaults and
// the environment serve, unless the user or FORGE_CONFIG names one.
func (a *app) loadReport(opts config.LoadOptions) (*config.Config, config.Report, error) {
	opts.JudgeAlert = alerts.Judge
	cfg, report, err := config.Load(a.configPath, opts)
	if errors.Is(err, config.ErrNotFound) && !a.fileNamed() {
		return config.Parse("environment", nil, opts)
	}
	return cfg, report, err
}

// fileNamed says that --config or FORGE_CONFIG names the file: it must exist then.
func (a *app) fileNamed() bool { return a.configPath != "" || os.Getenv("FORGE_CONFIG") != "" }

func (a *app) warn(report config.Report) {
	for _, problem := range report.Warnings() {
		_, _ = fmt.Fprintln(a.err, problem)
	}
}

// withDatabase runs work on a connected pool. Commands read the configuration
// for the address only and leave its warnings to forge check.
func (a *app) withDatabase(ctx context.Context, work func(context.Context, *pgxpool.Pool) error) error {
	cfg, err := a.loadQuietly()
	if err != nil {
		return err
	}
	return a.connectedFor(ctx, cfg, work)
}

// connectedFor runs a command's work on a pool: if the command changes something, it
// needs the primary and is written to the audit log.
func (a *app) connectedFor(ctx context.Context, cfg *config.Config, work func(context.Context, *pgxpool.Pool) error) error {
	if a.action != "" {
		return connected(ctx, cfg, a.audited(work))
	}
	return a.connectedToRead(ctx, cfg, work)
}

func (a *app) loadQuietly() (*config.Config, error) { return a.quiet().load() }

// quiet is the app without its warnings.
func (a *app) quiet() *app {
	quiet := *a
	quiet.err = io.Discard
	return &quiet
}

func connected(ctx context.Context, cfg *config.Config, work func(context.Context, *pgxpool.Pool) error) error {
	pool, err := openPool(ctx, cfg, false)
	if err != nil {
		return err
	}
	defer pool.Close()
	return explainRefusal(ctx, pool, cfg.Database.Schema, work(ctx, pool))
}

// openPool returns a pool that has connected; to a server that takes no writes only if
// anyServer says so.
func openPool(ctx context.Context, cfg *config.Config, anyServer bool) (*pgxpool.Pool, error) {
	if err := requireDatabase(cfg); err != nil {
		return nil, err
	}
	pool, err := dbpool.New(ctx, dbpool.Options{
		URL: cfg.Database.URL, Schema: cfg.Database.Schema, ApplicationName: "forge-cli",
		Pooled: cfg.Cluster.LeaderElection.ByLease(), AnyServer: anyServer,
	})
	if err != nil {
		return nil, databaseError(err)
	}
	if err := dbpool.Ping(ctx, pool); err != nil {
		pool.Close()
		return nil, databaseError(err)
	}
	return pool, nil
}

// requireDatabase tells of the cluster that forge dev runs from here when nothing
// names a database. Its own is not taken unasked: somebody may have meant another.
func requireDatabase(cfg *config.Config) error {
	err := cfg.RequireDatabase()
	if err == nil {
		return nil
	}
	if folder, failed := devcluster.DefaultDataDir(); failed == nil {
		file := filepath.Join(folder, devcluster.URLFile)
		if _, failed := os.Stat(file); failed == nil {
			err = fmt.Errorf("%w; it runs from here, so: export FORGE_DATABASE_URL=\"$(cat %s)\"", err, file)
		}
	}
	return databaseError(err)
}

// explainRefusal turns PostgreSQL's complaint about a table of ours into advice:
// nothing has migrated this database yet, or its tables are another's.
func explainRefusal(ctx context.Context, pool *pgxpool.Pool, schema string, err error) error {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch refused.Code {
	case "42P01": // undefined_table
		return fmt.Errorf("this database has no forge tables yet; start a node or run forge migrate up (%s)", refused.Message)
	case "25006": // read_only_sql_transaction
		return fmt.Errorf("the server is read-only, and this needs the primary (%s)", refused.Message)
	case "42501": // insufficient_privilege
		return grants.Explain(ctx, pool, schema, err)
	default:
		return err
	}
}
