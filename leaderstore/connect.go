package leaderstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/dbpool"
)

// connect opens a connection whose session lasts.
func connect(ctx context.Context, cfg SessionConfig, adapt func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	return dial(ctx, cfg, adapt, func(conn *pgx.Conn) error {
		_, err := dbpool.Settle(ctx, conn, cfg.settings())
		return explainSettle(err)
	})
}

// connectLease opens one that may lead through a pooler in transaction mode.
func connectLease(ctx context.Context, cfg SessionConfig) (*pgx.Conn, error) {
	return dial(ctx, cfg, func(config *pgx.ConnConfig) {
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // prepares nothing by name
	}, func(conn *pgx.Conn) error { return dbpool.SettleSchema(ctx, conn, cfg.Schema) })
}

// dial connects to a server that takes writes.
func dial(ctx context.Context, cfg SessionConfig, adapt func(*pgx.ConnConfig), settle func(*pgx.Conn) error) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(cfg.URL)
	if err != nil {
		return nil, err
	}
	config.ValidateConnect = dbpool.RequireWritable
	dbpool.ConfirmCommits(&config.Config)
	config.ConnectTimeout = max(cfg.Lease, 2*time.Second)
	config.RuntimeParams["application_name"] = ApplicationName(cfg.NodeID, cfg.Incarnation)
	adapt(config)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, explainConnect(err, config)
	}
	if err := settle(conn); err != nil {
		closeNow(conn)
		return nil, err
	}
	return conn, nil
}

// settings are those of the session's whole life.
func (cfg SessionConfig) settings() map[string]string {
	return map[string]string{
		"idle_session_timeout":                cfg.patience(),
		"idle_in_transaction_session_timeout": milliseconds(cfg.Lease),
		"statement_timeout":                   "0",
		"lock_timeout":                        "0",
		// Renewals only move a visible time stamp; the mint waits for its WAL.
		"synchronous_commit": "off",
		"search_path":        cfg.Schema,
		// TCP must not free the lock sooner than the lease does: the old leader may
		// still trust. 0 is off, or what the operating system has.
		"tcp_user_timeout":        "0",
		"tcp_keepalives_idle":     "0",
		"tcp_keepalives_interval": "0",
		"tcp_keepalives_count":    "0",
	}
}

const (
	throughPooler = "a pooler in transaction mode stands between this node and PostgreSQL; set database.leader_url " +
		"to an address that leads straight to the server, or cluster.leader_election.strategy = \"lease\" on every node"

	tooOld = "this PostgreSQL has no idle_session_timeout; forge needs version 14 or newer"
)

// explainConnect adds what to do about a server that takes no writes. It may be
// promoted at any time, so that trying again does help.
func explainConnect(err error, config *pgx.ConnConfig) error {
	if dbpool.IsReadOnly(err) {
		return fmt.Errorf("%w; %s", dbpool.ErrReadOnly, dbpool.ReadOnlyRemedy(err, "database.leader_url", config))
	}
	return err
}

func explainSettle(err error) error {
	if errors.Is(err, dbpool.ErrTransactionPooler) {
		return fmt.Errorf("%w: %s", ErrUnfit, throughPooler)
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "42704" { // undefined_object
		return fmt.Errorf("%w: %s", ErrUnfit, tooOld)
	}
	return err
}
