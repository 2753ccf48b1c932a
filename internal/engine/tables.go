package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
)

const (
	// prefix begins the name of everything that a probe creates; the time of its creation
	// in Unix seconds follows.
	prefix = "forge_probe_"
	// leftover is the age at which a schema of an earlier probe is dropped.
	leftover = time.Hour

	leftoversSQL = `SELECT nspname FROM pg_namespace WHERE nspname LIKE 'forge\_probe\_%' AND pg_has_role(nspowner, 'USAGE')`

	mayCreateSQL = `SELECT to_regnamespace($1) IS NOT NULL AND has_schema_privilege($1, 'CREATE')`
)

// Codes of PostgreSQL's errors.
const (
	insufficientPrivilege = "42501"
	uniqueViolation       = "23505"
	lockNotAvailable      = "55P03"
)

// bench is what the probes of one run share.
type bench struct {
	Options
	// own is the schema that the run created; home is where its tables are, and drops are
	// the statements that drop them.
	own, home string
	drops     []string
	homeErr   error
}

// newName returns a name that no other run uses.
func newName() string {
	return prefix + strconv.FormatInt(time.Now().Unix(), 10) + "_" + strconv.FormatUint(rand.Uint64(), 36)
}

// place returns the qualified name of a new object of the kind, which clean drops.
func (b *bench) place(ctx context.Context, conn *pgx.Conn, kind string) (string, error) {
	if b.home == "" && b.homeErr == nil {
		b.homeErr = b.findHome(ctx, conn)
	}
	if b.homeErr != nil {
		return "", b.homeErr
	}
	qualified := pgx.Identifier{b.home, newName()}.Sanitize()
	if b.own == "" {
		b.drops = append(b.drops, "DROP "+kind+" IF EXISTS "+qualified+" CASCADE")
	}
	return qualified, nil
}

// findHome creates a schema or, without the right to, chooses the configured one.
func (b *bench) findHome(ctx context.Context, conn *pgx.Conn) error {
	schema := newName()
	_, err := conn.Exec(ctx, "CREATE SCHEMA "+schema)
	if err == nil {
		b.own, b.home = schema, schema
		return nil
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != insufficientPrivilege {
		return err
	}
	var may bool
	if err := conn.QueryRow(ctx, mayCreateSQL, b.Schema).Scan(&may); err != nil {
		return err
	}
	if !may {
		return fmt.Errorf("the user may create neither a schema nor a table in schema %s: run the probes as the owner of forge's tables", b.Schema)
	}
	b.home = b.Schema
	return nil
}

// clean drops what the run has created, and schemas that earlier runs have left.
func (b *bench) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	conn, err := dial(ctx, b.URL)
	if err != nil {
		return // a later run drops the schema
	}
	defer postgres.CloseNow(conn)
	if b.own != "" {
		b.drops = append(b.drops, "DROP SCHEMA IF EXISTS "+b.own+" CASCADE")
	}
	for _, drop := range append(b.drops, b.leftovers(ctx, conn)...) {
		_, _ = conn.Exec(ctx, drop) // a later run drops it
	}
}

// leftovers returns the statements that drop the schemas of processes that were killed.
func (b *bench) leftovers(ctx context.Context, conn *pgx.Conn) []string {
	names, err := postgres.Collect(ctx, conn, pgx.RowTo[string], leftoversSQL)
	if err != nil {
		return nil
	}
	var drops []string
	for _, name := range names {
		seconds, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "_")
		created, err := strconv.ParseInt(seconds, 10, 64)
		if err == nil && time.Since(time.Unix(created, 0)) > leftover {
			drops = append(drops, "DROP SCHEMA IF EXISTS "+pgx.Identifier{name}.Sanitize()+" CASCADE")
		}
	}
	return drops
}

// withTable creates a table with the columns and opens two connections for do.
func (b *bench) withTable(ctx context.Context, columns string, do func(first, second *pgx.Conn, table string) (string, error)) (string, error) {
	return pair(ctx, b.URL, func(first, second *pgx.Conn) (string, error) {
		table, err := b.place(ctx, first, "TABLE")
		if err != nil {
			return "", err
		}
		if _, err := first.Exec(ctx, "CREATE TABLE "+table+" ("+columns+")"); err != nil {
			return "", err
		}
		return do(first, second, table)
	})
}

// is reports whether err is an error of the server with the code.
func is(err error, code string) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == code
}
