package rescue

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Every connection of a node has this name, cut to PostgreSQL's 63 bytes. The incarnation
// comes first, so it is never cut.
const endSessionsSQL = `
SELECT count(*), count(*) FILTER (WHERE pg_terminate_backend(pid))
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND starts_with(application_name, 'forge:' || $1 || ':')`

// insufficientPrivilege is PostgreSQL's SQLSTATE for a missing privilege.
const insufficientPrivilege = "42501"

// endSessions ends an incarnation's sessions, and returns how many there were. It returns
// permitted as false if the privilege is missing.
func endSessions(ctx context.Context, pool *pgxpool.Pool, incarnation string) (found int, permitted bool, err error) {
	var ended int
	err = pool.QueryRow(ctx, endSessionsSQL, incarnation).Scan(&found, &ended)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == insufficientPrivilege {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("end the sessions of incarnation %s: %w", incarnation, err)
	}
	return found, true, nil
}
