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

// connect opens a connection with a lasting session.
func connect(ctx context.Context, cfg SessionConfig, adapt func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	return dial(ctx, cfg, adapt, func(conn *pgx.Conn) error {
		_, err := postgres.Settle(ctx, conn, cfg.settings())
		return explainSettle(err)
	})
}

// connectLease opens a connection that may use a transaction pooler.
func connectLease(ctx context.Context, cfg SessionConfig) (*pgx.Conn, error) {
	return dial(ctx, cfg, func(config *pgx.ConnConfig) {
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // uses no named prepared statements
	}, func(conn *pgx.Conn) error { return postgres.SettleSchema(ctx, conn, cfg.Schema) })
}

// dial connects to a server that accepts writes.
func dial(ctx context.Context, cfg SessionConfig, adapt func(*pgx.ConnConfig), settle func(*pgx.Conn) error) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(cfg.URL)
	if err != nil {
		return nil, err
	}
	config.ValidateConnect = postgres.RequireWritable
	postgres.ConfirmCommits(&config.Config)
	config.ConnectTimeout = max(cfg.Lease, 2*time.Second)
	config.RuntimeParams["application_name"] = ApplicationName(cfg.NodeID, cfg.Incarnation)
	adapt(config)
	conn, err := postgres.Connect(ctx, config)
	if err != nil {
		return nil, explainConnect(err, config)
	}
	if err := settle(conn); err != nil {
		postgres.CloseNow(conn)
		return nil, err
	}
	return conn, nil
}

// openIdleTimeout is how long the server keeps a silent session that is being opened. Such a
// session holds no role's lock, and a starved process may need longer than a lease between
// two of its statements.
const openIdleTimeout = 30 * time.Second

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
