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

// TablesError lists tables that a node requires and that do not exist, such as river_job.
type TablesError struct{ Missing []string }

func (e *TablesError) Error() string {
	return fmt.Sprintf("the schema lacks %s; see forge doctor", strings.Join(e.Missing, ", "))
}

const (
	readOnlySQL = `SELECT current_setting('transaction_read_only')::bool`

	// A set that does not fit into work_mem is written to a file on the disk of
	// the tables, and leaves no row and no WAL. Writing to tables would not detect a
	// full disk, because an update may find free space in their pages.
	fillSQL = `SELECT count(*) FROM generate_series(1, 4000)`

	// objectsSQL are the tables that running a job requires, and a sequence.
	objectsSQL = `
FROM unnest('{forge_nodes,forge_leaders,forge_crons,forge_cron_ticks,forge_events,river_job,river_job_id_seq}'::text[])
         WITH ORDINALITY AS objects (name, place)`

	missingSQL = `SELECT coalesce(array_agg(name ORDER BY place), '{}')` + objectsSQL + ` WHERE to_regclass($1 || '.' || name) IS NULL`

	// The privileges that running a job requires. forge doctor checks the others.
	rightsSQL = `
SELECT current_user::text, coalesce(array_agg(privilege || ' on ' || name ORDER BY place, privilege), '{}')` + objectsSQL + `,
     unnest('{SELECT,INSERT,UPDATE,USAGE}'::text[]) AS privilege
WHERE CASE WHEN name LIKE '%\_seq' THEN privilege = 'USAGE' AND NOT has_sequence_privilege(to_regclass($1 || '.' || name), 'USAGE')
           ELSE privilege <> 'USAGE' AND NOT has_table_privilege(to_regclass($1 || '.' || name), privilege) END`

	// A schema that does not exist lacks tables, not rights.
	schemaRightSQL = `SELECT coalesce(has_schema_privilege(to_regnamespace($1), 'USAGE'), true)`
)

// CheckWrites returns why a node cannot work: ErrWritesRejected, a *DiskError, a
// *RightsError or a *TablesError. Other errors concern the connection. It costs the server some
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
	quoted := pgx.Identifier{schema}.Sanitize()
	var usage bool
	if err := tx.QueryRow(ctx, schemaRightSQL, quoted).Scan(&usage); err != nil {
		return err
	}
	if !usage { // nothing in it can be looked up
		return &RightsError{User: tx.Conn().Config().User, Missing: []string{"USAGE on schema " + schema}}
	}
	var absent TablesError
	if err := tx.QueryRow(ctx, missingSQL, quoted).Scan(&absent.Missing); err != nil {
		return err
	}
	if len(absent.Missing) > 0 {
		return &absent
	}
	var rights RightsError
	if err := tx.QueryRow(ctx, rightsSQL, quoted).Scan(&rights.User, &rights.Missing); err != nil {
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
