package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrTransactionPooler means that settings, locks and notifications of a session do
// not last, because transactions of other clients run on the same session.
var ErrTransactionPooler = errors.New("PostgreSQL is behind a pooler in transaction mode")

// probes is the number of tests for a pooler. A single test can miss a pooler in
// transaction mode whose other clients connect and disconnect meanwhile.
const probes = 3

// probeTimeout bounds one test: with a single server connection, the second client
// waits for the first.
const probeTimeout = 3 * time.Second

const searchPath = "search_path"

const (
	// One statement checks that the connection is direct and makes the settings. A
	// direct connection costs one round trip, and a shared session is not changed.
	settleSQL = `
SELECT bool_or(pg_backend_pid() = $1::bigint),
       count(CASE WHEN pg_backend_pid() = $1::bigint OR $2 THEN set_config(s.name, s.value, false) END)
FROM unnest($3::text[], $4::text[]) AS s (name, value)`

	backendSQL = `SELECT pg_backend_pid()`

	// The search_path names the schema even if the schema does not exist yet.
	schemaSQL = `
SELECT coalesce(current_schema(), ''), current_user,
       current_schema() = $1
       OR to_regnamespace($1) IS NULL
          AND $1 = ANY (string_to_array(translate(current_setting('search_path'), ' "', ''), ','))`
)

// SettleSchema sets the schema of the connection if the session is not shared. If
// it is shared and the role's own search_path leads to another schema, it fails.
func SettleSchema(ctx context.Context, conn *pgx.Conn, schema string) error {
	if _, err := settle(ctx, conn, map[string]string{searchPath: schema}, false); err != nil {
		return err
	}
	return checkSchema(ctx, conn, schema)
}

func checkSchema(ctx context.Context, conn *pgx.Conn, schema string) error {
	var current, role string
	var right bool
	if err := conn.QueryRow(ctx, schemaSQL, pgx.QueryExecModeExec, schema).Scan(&current, &role, &right); err != nil {
		return fmt.Errorf("find the schema: %w", err)
	}
	if !right {
		return fmt.Errorf("the search_path leads elsewhere: through a pooler in transaction mode the role's own counts, and that of %q leads to schema %q; "+
			"run ALTER ROLE %s SET search_path = %s and let the pooler reconnect, or set database.schema",
			role, current, pgx.Identifier{role}.Sanitize(), pgx.Identifier{schema}.Sanitize())
	}
	return nil
}

// Settle makes the settings for the session of a new connection. It does so after
// the start-up because poolers reject or drop settings in the start-up message. It
// reports whether there is a pooler. ErrTransactionPooler means that the session is
// shared; nothing was set in that case.
func Settle(ctx context.Context, conn *pgx.Conn, settings map[string]string) (pooler bool, err error) {
	direct, err := settle(ctx, conn, settings, false)
	if direct || err != nil {
		return false, err
	}
	shared, err := transactionMode(ctx, conn)
	if err != nil {
		return true, fmt.Errorf("determine the pooler's mode: %w", err)
	}
	if shared {
		return true, ErrTransactionPooler
	}
	_, err = settle(ctx, conn, settings, true)
	return true, err
}

// greeter prepares every new connection of a pool.
type greeter struct {
	settings map[string]string
	pooled   bool
	admit    func(ctx context.Context, conn *pgx.Conn) error
	// lasting is whether a pooler was found to be in session mode.
	lasting atomic.Bool
}

func (g *greeter) greet(ctx context.Context, conn *pgx.Conn) error {
	if err := g.settle(ctx, conn); err != nil {
		return err
	}
	if g.admit == nil {
		return nil
	}
	return g.admit(ctx, conn)
}

func (g *greeter) settle(ctx context.Context, conn *pgx.Conn) error {
	if g.pooled {
		if _, err := settle(ctx, conn, g.settings, false); err != nil {
			return err
		}
		return checkSchema(ctx, conn, g.settings[searchPath])
	}
	if g.lasting.Load() {
		_, err := settle(ctx, conn, g.settings, true)
		return err
	}
	pooler, err := Settle(ctx, conn, g.settings)
	g.lasting.Store(pooler && err == nil)
	return err
}

// settle makes the settings and reports whether the connection is direct. Through a
// pooler it makes them only if pooled allows it.
func settle(ctx context.Context, conn *pgx.Conn, settings map[string]string, pooled bool) (direct bool, err error) {
	names := slices.Sorted(maps.Keys(settings))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = settings[name]
	}
	err = conn.QueryRow(ctx, settleSQL, pgx.QueryExecModeExec, int64(conn.PgConn().PID()), pooled, names, values).Scan(&direct, nil)
	if err != nil {
		return false, fmt.Errorf("configure the session: %w", err)
	}
	return direct, nil
}

// transactionMode reports whether the server's session is given to another client
// between two statements.
func transactionMode(ctx context.Context, conn *pgx.Conn) (bool, error) {
	other, err := pgx.ConnectConfig(ctx, conn.Config())
	if err != nil {
		return false, err
	}
	defer CloseNow(other)
	for range probes {
		if shared, err := sharesBackend(ctx, conn, other); shared || err != nil {
			return shared, err
		}
	}
	return false, nil
}

// sharesBackend keeps the session of the second client in a transaction and checks
// whether the first client gets the same session.
func sharesBackend(ctx context.Context, first, second *pgx.Conn) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	before, err := backend(ctx, first)
	if err != nil {
		return false, err
	}
	_, err = second.Exec(ctx, "BEGIN", pgx.QueryExecModeSimpleProtocol)
	if _, refused := errors.AsType[*pgconn.PgError](err); refused {
		return true, nil // statement mode has no transactions
	}
	if err != nil {
		return false, err
	}
	held, err := backend(ctx, second)
	if err != nil {
		return false, err
	}
	after := before
	if held != before {
		after, err = backend(ctx, first)
	}
	if err == nil {
		_, err = second.Exec(ctx, "ROLLBACK", pgx.QueryExecModeSimpleProtocol)
	}
	return held == before || after != before, err
}

// Direct reports whether there is no pooler between the connection and the server.
func Direct(ctx context.Context, conn *pgx.Conn) (bool, error) {
	pid, err := backend(ctx, conn)
	if err != nil {
		return false, fmt.Errorf("look for a pooler: %w", err)
	}
	return uint32(pid) == conn.PgConn().PID(), nil
}

func backend(ctx context.Context, conn *pgx.Conn) (pid int, err error) {
	err = conn.QueryRow(ctx, backendSQL, pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}
