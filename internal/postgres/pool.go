package postgres

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

// ErrUnreachable marks failures to connect to PostgreSQL.
var ErrUnreachable = errors.New("PostgreSQL cannot be reached")

const (
	// idleTime is how long a connection opened under load is kept. Each connection
	// is a server process, which has to end before the locks of a dead node are
	// free.
	idleTime = 15 * time.Second
	// poolsIdleTime and poolsPeriod are the defaults of pgxpool; an address may set
	// other values.
	poolsIdleTime, poolsPeriod = 30 * time.Minute, time.Minute
	// greetConnects is how long a new connection may take between its start-up and
	// its first use, in connect timeouts: these are a few statements.
	greetConnects = 3
	// dedicatedConns is the maximum number of connections of a dedicated pool. A
	// connection whose statement timed out counts until pgx has closed it, which
	// takes 15 seconds if the server does not answer; one that is being opened counts
	// until each server of the address has answered or timed out.
	dedicatedConns = 4
	// closeTimeout is how long ClosePool waits.
	closeTimeout = 2 * time.Second
)

// PoolOptions describes a pool.
type PoolOptions struct {
	URL string
	// Schema holds the tables of forge and River.
	Schema string
	// MaxConns is the maximum number of connections; 0 means 4.
	MaxConns int
	// ApplicationName is the name of the connections in pg_stat_activity.
	ApplicationName string
	// IdleInTransaction ends a transaction whose client is frozen or disconnected;
	// 0 means 3 seconds.
	IdleInTransaction time.Duration
	// Pooled is whether the URL may lead through a pooler in transaction mode. The
	// pool then uses no session features, and Schema must be the schema of the
	// role's own search_path.
	Pooled bool
	// AnyServer accepts read-only servers. Otherwise the pool connects to the first
	// server of the URL that accepts writes, whatever its target_session_attrs.
	AnyServer bool
	// Tracer, if set, traces statements; if it is a pgxpool.AcquireTracer, it also
	// traces waits for connections.
	Tracer pgx.QueryTracer
	// Admit is called for every new connection; an error rejects the connection.
	Admit func(ctx context.Context, conn *pgx.Conn) error
}

// NewPool returns a pool that connects when it is first used. It returns an error
// if the URL cannot be parsed; the error never contains a password.
func NewPool(ctx context.Context, opts PoolOptions) (*pgxpool.Pool, error) {
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
		// A health check reverses the stack of idle connections: the connection
		// that was idle for longest is used next. With a shorter period, two
		// connections would be used in turn and never become idle.
		config.HealthCheckPeriod = 2 * config.MaxConnIdleTime
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	if config.PingTimeout == 0 {
		config.PingTimeout = config.ConnConfig.ConnectTimeout
	}
	idle := opts.IdleInTransaction
	if idle == 0 {
		idle = 3 * time.Second
	}
	settings := sessionSettings()
	settings["idle_in_transaction_session_timeout"], settings[searchPath] = strconv.FormatInt(idle.Milliseconds(), 10), opts.Schema
	SetClientParams(&config.ConnConfig.Config)
	config.ConnConfig.RuntimeParams["application_name"] = opts.ApplicationName
	maps.Copy(config.ConnConfig.RuntimeParams, settings) // for reading; a pooler would reject them
	preferred := newPreferredServer(config.ConnConfig)
	config.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
		preferred.putFirst(config, time.Now())
		readPassword(config, opts.URL)
		config.DialFunc = (&dialer{dial: config.DialFunc, closeTimeout: config.ConnectTimeout}).Dial
		maps.DeleteFunc(config.RuntimeParams, func(name, _ string) bool { return settings[name] != "" })
		return nil
	}
	if opts.Pooled {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // uses no named prepared statements
	}
	greet := &greeter{settings: settings, pooled: opts.Pooled, admit: opts.Admit}
	greetTimeout := greetConnects * config.ConnConfig.ConnectTimeout
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		preferred.accepted(conn.PgConn())
		if link := linkOf(conn); link != nil {
			defer link.dialer.connected.Store(true)
		}
		// The context of the pool has no deadline.
		ctx, cancel := context.WithTimeout(ctx, greetTimeout)
		defer cancel()
		return greet.greet(ctx, conn)
	}
	return newResetPool(ctx, config)
}

// readPassword reads the password again: the file that holds it may have changed.
func readPassword(config *pgx.ConnConfig, url string) {
	if read, err := pgx.ParseConfig(url); err == nil && read.Password != "" {
		config.Password = read.Password
	}
}

// Dedicated returns a pool with the configuration of another pool, for statements
// that must not wait for a free connection of that pool. Used by one caller at a time,
// it has one connection. It opens more, up to dedicatedConns, only while a server does
// not answer, so that a statement after a failover does not wait for the old server.
// Idle connections are not checked before their use: on a slow server the check would
// take as long as the statement.
func Dedicated(ctx context.Context, of *pgxpool.Pool) (*pgxpool.Pool, error) {
	config := of.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = dedicatedConns, 0, 0
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	return pgxpool.NewWithConfig(ctx, config)
}

// ClosePool closes a pool. It waits for the connections to be closed, but at most for
// closeTimeout: pgx waits 15 seconds for a server that does not answer. Such
// connections are closed in the background.
func ClosePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
}

// EnsureSchema creates the configured schema if it is missing. An existing schema
// needs no privilege.
func EnsureSchema(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	var exists bool
	if err := pool.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL", schema).Scan(&exists); err != nil {
		return fmt.Errorf("look for schema %s: %w", schema, err)
	}
	if exists {
		return nil
	}
	_, err := pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{schema}.Sanitize())
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "23505" { // another node created it first
		return nil
	}
	if err != nil {
		return fmt.Errorf("create schema %s: %w", schema, err)
	}
	return nil
}
