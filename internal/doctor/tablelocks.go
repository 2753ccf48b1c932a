package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// tableLocksSQL finds sessions whose locks keep others from writing to a table, while another
// session has waited for a second, or if $2. Prepared transactions have no session. Only members of
// pg_read_all_stats see the age of other users' transactions.
const tableLocksSQL = `
SELECT min(l.relation::regclass::text), count(DISTINCT l.relation), coalesce(l.pid, 0), coalesce(a.usename::text, ''), coalesce(a.application_name, ''),
       coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8
FROM pg_locks l
JOIN pg_class c ON c.oid = l.relation
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND c.relnamespace = to_regnamespace($1) AND c.relkind IN ('r', 'p') AND (c.relname LIKE 'forge@_%' ESCAPE '@' OR c.relname LIKE 'river@_%' ESCAPE '@')
  AND ($2 OR EXISTS (SELECT FROM pg_locks w WHERE w.relation = l.relation AND w.database = l.database AND NOT w.granted
                     AND w.waitstart < clock_timestamp() - interval '1 second'))
GROUP BY 3, 4, 5, 6
ORDER BY 6 DESC LIMIT 5`

// TableLock is a session that keeps others from tables of forge or River.
type TableLock struct {
	// Table is one of the Tables that it has locked.
	Table  string
	Tables int
	// PID is 0 for a prepared transaction.
	PID                   int
	User, ApplicationName string
	// Seconds is the age of its transaction; 0 if unknown.
	Seconds float64
}

func tableLocks(ctx context.Context, db postgres.DB, schema string, refused bool) ([]TableLock, error) {
	return postgres.Select(ctx, db, "look for locks of tables", pgx.RowToStructByPos[TableLock], tableLocksSQL, schema, refused)
}

func (l TableLock) String() string {
	text := "a prepared transaction"
	if l.PID != 0 {
		text = fmt.Sprintf("process %d (user %s, application %q)", l.PID, l.User, l.ApplicationName)
	}
	text += " has locked " + l.Table
	if l.Tables > 1 {
		text += fmt.Sprintf(" and %d more", l.Tables-1)
	}
	if l.Seconds >= 1 {
		text += " in a transaction that is open for " + explain.Span(time.Duration(l.Seconds*float64(time.Second)))
	}
	return text
}

func checkTableLocks(f Facts, r *report) {
	for _, lock := range f.LockHolders {
		remedy := "end it with COMMIT PREPARED or ROLLBACK PREPARED; see pg_prepared_xacts"
		if lock.PID != 0 {
			remedy = fmt.Sprintf("let it end, or end it: SELECT pg_terminate_backend(%d)", lock.PID)
		}
		r.fail(remedy, "%s: others wait", lock)
	}
	r.orOK("no session keeps others from forge's tables")
}
