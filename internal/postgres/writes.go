package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// PostgreSQL error codes for a full or failing disk.
const (
	codeDiskFull = "53100"
	codeIOError  = "58030"
)

// ErrWritesRejected means that the server rejects writes.
var ErrWritesRejected = errors.New("the database is read-only")

// DiskError means that the server cannot write to its disk.
type DiskError struct{ Err *pgconn.PgError }

func (e *DiskError) Error() string { return "the database cannot write to its disk: " + e.Err.Message }

// Unwrap returns the server's error.
func (e *DiskError) Unwrap() error { return e.Err }

// RightsError lists the missing privileges that a node requires, such as "UPDATE on
// river_job".
type RightsError struct {
	User    string
	Missing []string
}

func (e *RightsError) Error() string {
	return fmt.Sprintf("user %s lacks %s; see forge doctor", e.User, strings.Join(e.Missing, ", "))
}

const (
	readOnlySQL = `SELECT current_setting('transaction_read_only')::bool`

	// A set that does not fit into work_mem is written to a file on the disk of
	// the tables, and leaves no row and no WAL. Writing to tables would not detect a
	// full disk, because an update may find free space in their pages.
	fillSQL = `SELECT count(*) FROM generate_series(1, 4000)`

	// The privileges that running a job requires. forge doctor checks the others.
	rightsSQL = `
SELECT current_user::text, coalesce(array_agg(privilege || ' on ' || name ORDER BY place, privilege), '{}')
FROM unnest('{forge_nodes,forge_leaders,forge_crons,forge_cron_ticks,forge_events,river_job,river_job_id_seq}'::text[])
         WITH ORDINALITY AS objects (name, place),
     unnest('{SELECT,INSERT,UPDATE,USAGE}'::text[]) AS privilege
WHERE CASE WHEN name LIKE '%\_seq' THEN privilege = 'USAGE' AND NOT has_sequence_privilege(to_regclass($1 || '.' || name), 'USAGE')
           ELSE privilege <> 'USAGE' AND NOT has_table_privilege(to_regclass($1 || '.' || name), privilege) END`

	schemaRightSQL = `SELECT has_schema_privilege($1, 'USAGE')`
)

// CheckWrites returns why a node cannot work: ErrWritesRejected, a *DiskError or a
// *RightsError. Other errors concern the connection. It costs the server some
// milliseconds.
func CheckWrites(ctx context.Context, db DB, schema string) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return fmt.Errorf("check that the database accepts writes: %w", err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // nothing was written
	for _, check := range []func(context.Context, pgx.Tx, string) error{checkReadOnly, checkRights, checkDisk} {
		if err := check(ctx, tx, schema); err != nil {
			return err
		}
	}
	return nil
}

func checkReadOnly(ctx context.Context, tx pgx.Tx, _ string) error {
	var readOnly bool
	if err := tx.QueryRow(ctx, readOnlySQL).Scan(&readOnly); err != nil {
		return err
	}
	if readOnly {
		return ErrWritesRejected
	}
	return nil
}

func checkRights(ctx context.Context, tx pgx.Tx, schema string) error {
	var usage bool
	if err := tx.QueryRow(ctx, schemaRightSQL, schema).Scan(&usage); err != nil {
		return err
	}
	if !usage { // nothing in it can be looked up
		return &RightsError{User: tx.Conn().Config().User, Missing: []string{"USAGE on schema " + schema}}
	}
	var rights RightsError
	if err := tx.QueryRow(ctx, rightsSQL, pgx.Identifier{schema}.Sanitize()).Scan(&rights.User, &rights.Missing); err != nil {
		return err
	}
	if len(rights.Missing) > 0 {
		return &rights
	}
	return nil
}

func checkDisk(ctx context.Context, tx pgx.Tx, _ string) error {
	_, err := tx.Exec(ctx, `SET LOCAL work_mem = '64kB'`)
	if err == nil {
		_, err = tx.Exec(ctx, fillSQL)
	}
	refused, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return err
	case refused.Code == codeDiskFull || refused.Code == codeIOError:
		return &DiskError{refused}
	default: // for example a limit on temporary files
		return nil
	}
}
