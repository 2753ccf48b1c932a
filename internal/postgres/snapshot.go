package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Holders of a snapshot.
const (
	Session  = "session"
	Standby  = "standby" // through hot_standby_feedback
	Slot     = "slot"
	Prepared = "prepared"
)

// Holders lists everything that may hold a snapshot.
var Holders = []string{Session, Standby, Slot, Prepared}

// maxSnapshots bounds the result; the oldest come first.
const maxSnapshots = 20

// Snapshot is a snapshot that prevents VACUUM from removing rows that were deleted
// later.
type Snapshot struct {
	// Holder is one of Holders.
	Holder string
	// Name is the name of the slot, the id of the prepared transaction, or the user
	// and application of the session.
	Name string
	// PID is 0 if there is no process.
	PID int
	// Transactions is how many transactions have started since.
	Transactions int64
	// Age is the duration of the transaction; 0 if unknown, as for slots, standbys
	// and, without pg_read_all_stats, the sessions of other users.
	Age time.Duration
}

// ReplicationSlot is a slot that keeps write-ahead log for its consumer.
type ReplicationSlot struct {
	Name string
	// Active is whether a consumer is connected.
	Active bool
	// RetainedBytes is the amount of write-ahead log since the slot's restart_lsn, in bytes.
	RetainedBytes int64
	// Lost is whether the server removes, or has removed, log that the consumer needs, because
	// of max_slot_wal_keep_size.
	Lost bool
}

// Slots of every database are read: they all keep the log of the same server.
const slotsSQL = `
SELECT slot_name, active,
       coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn), 0)::bigint,
       coalesce(wal_status IN ('unreserved', 'lost'), false)
FROM pg_replication_slots
WHERE NOT temporary
ORDER BY 4 DESC, 3 DESC, 1
LIMIT $1`

// Slots returns the replication slots that keep the most write-ahead log, the largest first.
func Slots(ctx context.Context, db DB) ([]ReplicationSlot, error) {
	slots, err := Collect(ctx, db, pgx.RowToStructByPos[ReplicationSlot], slotsSQL, maxSnapshots)
	if err != nil {
		return nil, fmt.Errorf("read the replication slots: %w", err)
	}
	return slots, nil
}

// backend_xmin and backend_xid are visible to every user, xact_start is not.
// Autovacuum's own snapshots do not hold back VACUUM.
const snapshotsSQL = `
SELECT holder, name, pid, transactions, greatest(coalesce(seconds, 0), 0)::float8
FROM (
    SELECT CASE backend_type WHEN 'walsender' THEN 'standby' ELSE 'session' END AS holder,
           concat_ws(', ', usename, nullif(application_name, '')) AS name, pid,
           greatest(age(backend_xmin), age(backend_xid))::bigint AS transactions,
           CASE backend_type WHEN 'walsender' THEN NULL ELSE extract(epoch FROM clock_timestamp() - xact_start) END AS seconds
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
      AND (datname = current_database() OR datname IS NULL) AND backend_type IS DISTINCT FROM 'autovacuum worker'
    UNION ALL
    SELECT 'slot', slot_name, 0, greatest(age(xmin), age(catalog_xmin)), NULL
    FROM pg_replication_slots
    WHERE (xmin IS NOT NULL OR catalog_xmin IS NOT NULL) AND (database = current_database() OR database IS NULL)
    UNION ALL
    SELECT 'prepared', gid, 0, age(transaction), extract(epoch FROM clock_timestamp() - prepared)
    FROM pg_prepared_xacts
    WHERE database = current_database()
) AS snapshots
ORDER BY transactions DESC, seconds DESC NULLS LAST
LIMIT $1`

// Snapshots returns the oldest snapshots, oldest first.
func Snapshots(ctx context.Context, db DB) ([]Snapshot, error) {
	snapshots, err := Collect(ctx, db, func(row pgx.CollectableRow) (Snapshot, error) {
		var s Snapshot
		var seconds float64
		err := row.Scan(&s.Holder, &s.Name, &s.PID, &s.Transactions, &seconds)
		s.Age = time.Duration(seconds * float64(time.Second))
		return s, err
	}, snapshotsSQL, maxSnapshots)
	if err != nil {
		return nil, fmt.Errorf("read the oldest snapshots: %w", err)
	}
	return snapshots, nil
}
