package leaderstore

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// The age is 0 if the session is not visible.
const sessionAgeSQL = `
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - backend_start)), 0)::float8
FROM forge_leaders JOIN pg_stat_activity ON pid = backend_pid
WHERE role = $1 AND term = $2 AND starts_with(application_name, 'forge:' || incarnation || ':')`

// BatchSessionAge adds a query for the age of the election session of a term to a batch.
func BatchSessionAge(batch *pgx.Batch, role string, term int64, found func(age time.Duration)) {
	batch.Queue(sessionAgeSQL, role, term).QueryRow(func(row pgx.Row) error {
		var seconds float64
		err := row.Scan(&seconds)
		found(time.Duration(seconds * float64(time.Second)))
		return err
	})
}
