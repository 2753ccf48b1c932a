package leaderstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
)

// prepareFunc sends the first statements on a connection.
type prepareFunc func(ctx context.Context, conn *pgx.Conn) error

// connect opens a connection with a lasting session.
func connect(ctx context.Context, cfg SessionConfig, adapt func(*pgx.ConnConfig), prepare prepareFunc) (*pgx.Conn, error) {
	return dial(ctx, cfg, adapt, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := postgres.Settle(ctx, conn, cfg.settings()); err != nil {
			return explainSettle(err)
		}
		return prepare(ctx, conn)
	})
}

// connectLease opens a connection that may use a transaction pooler.
func connectLease(ctx context.Context, cfg SessionConfig, prepare prepareFunc) (*pgx.Conn, error) {
	return dial(ctx, cfg, func(config *pgx.ConnConfig) {
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // uses no named prepared statements
	}, func(ctx context.Context, conn *pgx.Conn) error {
		if err := postgres.SettleSchema(ctx, conn, cfg.Schema); err != nil {
			return err
		}
		return prepare(ctx, conn)
	})
}

// dial connects to a server that accepts writes. It returns an error if prepare has not
// returned within openTimeout.
func dial(ctx context.Context, cfg SessionConfig, adapt func(*pgx.ConnConfig), prepare prepareFunc) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(cfg.URL)
	if err != nil {
		return nil, err
	}
	config.ValidateConnect = postgres.RequireWritable
	postgres.ConfirmCommits(&config.Config)
	postgres.SetClientParams(&config.Config)
	config.ConnectTimeout = max(cfg.Lease, 2*time.Second)
	config.RuntimeParams["application_name"] = ApplicationName(cfg.NodeID, cfg.Incarnation)
	adapt(config)
	conn, err := postgres.Connect(ctx, config)
	if err != nil {
		return nil, explainConnect(err, config)
	}
	preparing, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := prepare(preparing, conn); err != nil {
		postgres.CloseNow(conn)
		if preparing.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("the session was not ready within %s: %w", openTimeout, err)
		}
		return nil, err
	}
	return conn, nil
}

// openIdleTimeout is how long the server keeps a silent session that is being opened. Such a
// session holds no role's lock, and a starved process may need longer than a lease between
// two of its statements.
const openIdleTimeout = 30 * time.Second

// openTimeout limits the statements that prepare a new connection. An overloaded server may
// need several seconds for each; a server that falls silent must not keep the node from
// opening another session.
const openTimeout = openIdleTimeout

// settings returns the settings of the whole session.
func (cfg SessionConfig) settings() map[string]string {
	return map[string]string{
		"idle_session_timeout":                milliseconds(openIdleTimeout), // until the session is open
		"idle_in_transaction_session_timeout": milliseconds(cfg.Lease),
		"statement_timeout":                   "0",
		"lock_timeout":                        "0",
		// Renewals only update a time stamp; acquireTerm waits for its WAL.
		"synchronous_commit": "off",
		"search_path":        cfg.Schema,
		// TCP timeouts must not free the lock before the lease expires, because the old
		// leader may still trust its lease. 0 disables a timeout or selects the default of
		// the operating system.
		"tcp_user_timeout":        "0",
		"tcp_keepalives_idle":     "0",
		"tcp_keepalives_interval": "0",
		"tcp_keepalives_count":    "0",
	}
}

const (
	poolerMessage = "a pooler in transaction mode is between this node and PostgreSQL; set database.leader_url " +
		"to an address that leads straight to PostgreSQL, or cluster.leader_election.strategy = \"lease\" on every node"

	versionMessage = "this PostgreSQL has no idle_session_timeout; forge needs version 14 or newer"
)

// explainConnect adds a remedy if the server is read-only. Such a server may be promoted at
// any time, so the node keeps retrying.
func explainConnect(err error, config *pgx.ConnConfig) error {
	if postgres.IsReadOnly(err) {
		return fmt.Errorf("%w; %s", postgres.ErrReadOnly, postgres.ReadOnlyRemedy(err, "database.leader_url", config))
	}
	return err
}

func explainSettle(err error) error {
	if errors.Is(err, postgres.ErrTransactionPooler) {
		return fmt.Errorf("%w: %s", ErrUnfit, poolerMessage)
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "42704" { // undefined_object
		return fmt.Errorf("%w: %s", ErrUnfit, versionMessage)
	}
	return err
}
