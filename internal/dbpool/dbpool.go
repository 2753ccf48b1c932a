// Package dbpool builds the connection pools of nodes and commands, all with
// the same manners: they name themselves, keep to the configured schema and
// never leave a transaction open behind a frozen process.
package dbpool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrUnreachable marks failures to get through to PostgreSQL.
var ErrUnreachable = errors.New("PostgreSQL cannot be reached")

const (
	// idleTime is how long a connection that a busy moment has opened is kept: each
	// is a process of the server's, and one more that has to end before a dead
	// node's locks are free.
	idleTime = 15 * time.Second
	// poolsIdleTime and poolsPeriod are pgxpool's own; an address may set others.
	poolsIdleTime, poolsPeriod = 30 * time.Minute, time.Minute
)

// Options describe a pool.
type Options struct {
	URL string
	// Schema holds forge's and River's tables.
	Schema string
	// MaxConns is the most connections; 0 means 4.
	MaxConns int
	// ApplicationName is how the connections show in pg_stat_activity.
	ApplicationName string
	// IdleInTransaction ends a transaction that its client has abandoned, frozen
	// or cut off; 0 means 3 seconds.
	IdleInTransaction time.Duration
	// Pooled says that the URL may lead through a pooler in transaction mode:
	// nothing is asked of a session then. The schema must be where the role's own
	// search_path leads.
	Pooled bool
	// AnyServer accepts servers that take no writes. Otherwise the pool connects to the
	// first server of the URL that does, whatever its target_session_attrs.
	AnyServer bool
	// Tracer, if set, is told of statements; one that is a pgxpool.AcquireTracer, of
	// waits for connections as well.
	Tracer pgx.QueryTracer
	// Admit is asked about every new connection; an error refuses it.
	Admit func(ctx context.Context, conn *pgx.Conn) error
}

// New returns a pool that connects when it is first used. An error means that
// the URL cannot be parsed; it never holds a password.
func New(ctx context.Context, opts Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(opts.URL)
	if err != nil {
		return nil, fmt.Errorf("parse the database's address: %w", err)
	}
	config.MaxConns = int32(max(opts.MaxConns, 4))
	config.ConnConfig.Tracer = opts.Tracer
	config.ConnConfig.ValidateConnect = RequireWritable
	if opts.AnyServer {
		config.ConnConfig.ValidateConnect = nil
	}
	ConfirmCommits(&config.ConnConfig.Config)
	if config.MaxConnIdleTime == poolsIdleTime {
		config.MaxConnIdleTime = idleTime
	}
	if config.HealthCheckPeriod == poolsPeriod {
		// A check turns the stack of idle connections round: the one that was idle for
		// longest is used next. Checked more often, two would take turns for ever.
		config.HealthCheckPeriod = 2 * config.MaxConnIdleTime
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	idle := opts.IdleInTransaction
	if idle == 0 {
		idle = 3 * time.Second
	}
	settings := map[string]string{
		"idle_in_transaction_session_timeout": strconv.FormatInt(idle.Milliseconds(), 10),
		searchPath:                            opts.Schema,
	}
	config.ConnConfig.RuntimeParams["application_name"] = opts.ApplicationName
	maps.Copy(config.ConnConfig.RuntimeParams, settings) // to be read; a pooler would refuse them
	config.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
		maps.DeleteFunc(config.RuntimeParams, func(name, _ string) bool { return settings[name] != "" })
		return nil
	}
	if opts.Pooled {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // prepares nothing by name
	}
	greet := &greeter{settings: settings, pooled: opts.Pooled, admit: opts.Admit}
	config.AfterConnect = greet.greet
	return pgxpool.NewWithConfig(ctx, config)
}

// Single returns a pool of one connection with the manners of another pool, for what
// must not wait until one of that is free.
func Single(ctx context.Context, of *pgxpool.Pool) (*pgxpool.Pool, error) {
	config := of.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	return pgxpool.NewWithConfig(ctx, config)
}

// EnsureSchema creates the configured schema when it is missing. One that is
// there needs no privilege.
func EnsureSchema(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	var exists bool
	if err := pool.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL", schema).Scan(&exists); err != nil {
		return fmt.Errorf("look for schema %s: %w", schema, err)
	}
	if exists {
		return nil
	}
	_, err := pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{schema}.Sanitize())
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "23505" { // another node was first
		return nil
	}
	if err != nil {
		return fmt.Errorf("create schema %s: %w", schema, err)
	}
	return nil
}
