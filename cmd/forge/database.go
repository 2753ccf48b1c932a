package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/forge-scheduler/forge/alerting"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/devcluster"
	"github.com/forge-scheduler/forge/internal/doctor"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/migrations"
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

// loadFile reads the configuration for a command about the file itself. It returns an error if
// there is no file or if the file is empty, and as soon as ctx ends.
func (a *app) loadFile(ctx context.Context, command string) (*config.Config, error) {
	cfg, report, err := loadUntil(ctx, func() (*config.Config, config.Report, error) {
		return config.Load(a.configPath, config.LoadOptions{JudgeAlert: alerting.New().Judge})
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, config.ErrNotFound):
		return nil, configError(fmt.Errorf("forge %s needs a configuration file, and there is none: %s", command, a.searched()))
	case err != nil:
		return nil, configError(err)
	case report.Empty:
		path, _ := a.configFile()
		return nil, configError(fmt.Errorf("%s: the file is empty; forge %s does not remove everything because of an empty file", path, command))
	}
	a.warn(report)
	return cfg, nil
}

// loadUntil returns what load returns, or the error of ctx if that ends first: a large file takes
// seconds. load then runs until the process ends, which it does at once.
func loadUntil(ctx context.Context, load func() (*config.Config, config.Report, error)) (*config.Config, config.Report, error) {
	type loaded struct {
		cfg    *config.Config
		report config.Report
		err    error
	}
	done := make(chan loaded, 1)
	go func() {
		cfg, report, err := load()
		done <- loaded{cfg, report, err}
	}()
	select {
	case l := <-done:
		return l.cfg, l.report, l.err
	case <-ctx.Done():
		return nil, config.Report{}, ctx.Err()
	}
}

// searched names the places searched for a configuration file, in order.
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

// loadReport reads the configuration and leaves printing the warnings to the caller. Without a file
// it uses the defaults and the environment, unless --config or FORGE_CONFIG names a file.
func (a *app) loadReport(opts config.LoadOptions) (*config.Config, config.Report, error) {
	opts.JudgeAlert = alerting.New().Judge
	cfg, report, err := config.Load(a.configPath, opts)
	if errors.Is(err, config.ErrNotFound) && !a.fileNamed() {
		return config.Parse("environment", nil, opts)
	}
	return cfg, report, err
}

// fileNamed reports whether --config or FORGE_CONFIG names the file, which must then exist.
func (a *app) fileNamed() bool { return a.configPath != "" || os.Getenv("FORGE_CONFIG") != "" }

// shownWarnings bounds the warnings that a command prints.
const shownWarnings = 50

func (a *app) warn(report config.Report) {
	warnings := report.Warnings()
	for _, problem := range warnings[:min(len(warnings), shownWarnings)] {
		a.note(problem)
	}
	if more := len(warnings) - shownWarnings; more > 0 {
		a.note(fmt.Sprintf("and %d more warnings: forge check -o json prints all", more))
	}
}

// databaseWork is what a command does on a connected pool.
type databaseWork = func(context.Context, *pgxpool.Pool) error

// onDatabase returns the run of a command whose work on the database needs no checks before it.
func (a *app) onDatabase(work func(ctx context.Context, pool *pgxpool.Pool, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error { return work(ctx, pool, args) })
	}
}

// listed returns the run of a command that prints rows of the database.
func listed[T any](a *app, columns []column[T], read func(ctx context.Context, pool *pgxpool.Pool, args []string) ([]T, error)) func(*cobra.Command, []string) error {
	return a.onDatabase(func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
		rows, err := read(ctx, pool, args)
		if err != nil {
			return err
		}
		return list(a, rows, columns)
	})
}

// withDatabase runs work on a connected pool. It does not print the configuration's warnings, because
// it needs only the database's address. A command that changes something needs the primary and is
// recorded in the audit log.
func (a *app) withDatabase(ctx context.Context, work databaseWork) (err error) {
	if a.cfg, err = a.quiet().load(); err != nil {
		if a.cfg = a.withoutFile(err); a.cfg == nil {
			return err
		}
	}
	if a.action != "" {
		return connected(ctx, a.cfg, a.audited(work))
	}
	return a.connectedToRead(ctx, a.cfg, work)
}

// withoutFile returns the configuration of the environment alone if ./forge.toml is broken, after a
// warning. It returns nil for a file that was named, for a command that changes something, and if no
// variable names the database.
func (a *app) withoutFile(broken error) *config.Config {
	invalid, ok := errors.AsType[*config.InvalidError](broken)
	if !ok || a.fileNamed() || a.action != "" {
		return nil
	}
	cfg, _, err := config.Parse("environment", nil, config.LoadOptions{})
	if err != nil || cfg.RequireDatabase() != nil {
		return nil
	}
	first, _, _ := strings.Cut(invalid.Error(), "\n")
	a.note("warning: ./" + config.DefaultPath + " is not used, because it has mistakes; the database is that of the environment (" + first + ")")
	return cfg
}

// quiet returns a copy of the app that prints no warnings.
func (a *app) quiet() *app {
	quiet := *a
	quiet.err = io.Discard
	return &quiet
}

func connected(ctx context.Context, cfg *config.Config, work databaseWork) error {
	pool, err := openPool(ctx, cfg, false)
	if err != nil {
		return err
	}
	defer postgres.ClosePool(pool)
	return explainRefusal(ctx, pool, cfg.Database.Schema, work(ctx, pool))
}

// connectedToRead runs work that changes nothing. If no server accepts writes, the work runs on a
// replica after a warning about the age of its data.
func (a *app) connectedToRead(ctx context.Context, cfg *config.Config, work databaseWork) error {
	pool, err := openPool(ctx, cfg, false)
	readOnly := errors.Is(err, postgres.ErrReadOnly)
	if readOnly {
		pool, err = openPool(ctx, cfg, true)
	}
	if err != nil {
		return err
	}
	defer postgres.ClosePool(pool)
	if readOnly {
		if err := a.warnOfReplica(ctx, pool); err != nil {
			return err
		}
	}
	return explainRefusal(ctx, pool, cfg.Database.Schema, work(ctx, pool))
}

func (a *app) warnOfReplica(ctx context.Context, pool *pgxpool.Pool) error {
	replay, err := postgres.ReadReplay(ctx, pool)
	if err != nil {
		return err
	}
	warning := "warning: no primary answers; this comes from a replica"
	switch {
	case !replay.Replica:
		warning = "warning: the server is read-only"
	case replay.Until.IsZero():
		warning += " that has replayed nothing since it started: its data may be of any age"
	default:
		warning += fmt.Sprintf(" and may be %s old: it has replayed the changes until %s", span(replay.Age), stamp(replay.Until))
	}
	a.note(warning)
	return nil
}

// openPool returns a connected pool. It accepts a read-only server only if anyServer is set.
func openPool(ctx context.Context, cfg *config.Config, anyServer bool) (*pgxpool.Pool, error) {
	if err := requireDatabase(cfg); err != nil {
		return nil, err
	}
	pool, err := postgres.NewPool(ctx, postgres.PoolOptions{
		URL: cfg.Database.URL, Schema: cfg.Database.Schema, ApplicationName: "forge-cli",
		Pooled: cfg.Cluster.LeaderElection.ByLease(), AnyServer: anyServer,
	})
	if err != nil {
		return nil, databaseError(err)
	}
	if err := postgres.Ping(ctx, pool); err != nil {
		postgres.ClosePool(pool)
		if errors.Is(ctx.Err(), context.Canceled) { // interrupted, which says nothing about the database
			return nil, ctx.Err()
		}
		return nil, databaseError(err)
	}
	return pool, nil
}

// requireDatabase returns an error if nothing names a database. If forge dev runs from this
// directory, the error says how to use its database. forge does not use it by default, because the
// user may have meant another.
func requireDatabase(cfg *config.Config) error {
	err := cfg.RequireDatabase()
	if err == nil {
		return nil
	}
	if folder, failed := devcluster.DefaultDataDir(); failed == nil {
		file := filepath.Join(folder, devcluster.URLFile)
		if _, failed := os.Stat(file); failed == nil {
			err = fmt.Errorf("%w; it runs from this directory: export FORGE_DATABASE_URL=\"$(cat %s)\"", err, file)
		}
	}
	return databaseError(err)
}

// explainRefusal adds advice to errors of PostgreSQL: the tables do not exist, the server is
// read-only, or the user lacks privileges.
func explainRefusal(ctx context.Context, pool *pgxpool.Pool, schema string, err error) error {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch refused.Code {
	case "42P01": // undefined_table
		if migrations.New(pool, slog.New(slog.DiscardHandler)).Check(ctx) == nil {
			return fmt.Errorf("a table is missing although its migration is recorded as applied (%s); see forge doctor", refused.Message)
		}
		return fmt.Errorf("this database has no forge tables yet; start a node or run forge migrate up (%s)", refused.Message)
	case "25006": // read_only_sql_transaction
		return fmt.Errorf("the server is read-only, and this needs the primary (%s)", refused.Message)
	case "42501": // insufficient_privilege
		return doctor.ExplainGrants(ctx, pool, schema, err)
	default:
		return err
	}
}
