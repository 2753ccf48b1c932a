package nodestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// runningSQL reads only columns that the tables have had since forge's first
// migration: it is used while later migrations are reverted.
const runningSQL = `
SELECT node_id, incarnation, hostname, pid, state, fenced_at,
    extract(epoch FROM clock_timestamp() - last_heartbeat_at)::float8,
    ARRAY (
        SELECT objid::bigint
        FROM pg_locks
        WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND objsubid = 2 AND classid::bigint = $1
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
FROM forge_nodes
ORDER BY node_id`

// programsSQL reads leaders that are not nodes, such as forge run.
const programsSQL = `
SELECT role, node_id
FROM forge_leaders
WHERE node_id IS NOT NULL AND lease_until > clock_timestamp() AND node_id NOT IN (SELECT node_id FROM forge_nodes)
ORDER BY role`

const codeUndefinedTable = "42P01"

// Running describes what uses the database: each node whose process holds its
// session lock or is not dead by policy, and each other program that leads a role.
// It works on every schema version, and without a schema.
func (s *Store) Running(ctx context.Context, policy Policy) (found []string, err error) {
	rows, err := s.db.Query(ctx, runningSQL, lockClass())
	if err == nil {
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) { return scanRunning(row, policy) })
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == codeUndefinedTable {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which nodes run: %w", err)
	}
	found = slices.DeleteFunc(found, func(one string) bool { return one == "" })
	programs, err := s.db.Query(ctx, programsSQL)
	if err != nil {
		return nil, fmt.Errorf("read the leaders: %w", err)
	}
	leading, err := pgx.CollectRows(programs, func(row pgx.CollectableRow) (string, error) {
		var role, id string
		err := row.Scan(&role, &id)
		return fmt.Sprintf("%s, which leads %s", id, role), err
	})
	if err != nil {
		return nil, fmt.Errorf("read the leaders: %w", err)
	}
	return append(found, leading...), nil
}

// scanRunning returns "" for a node that is not running.
func scanRunning(row pgx.CollectableRow, policy Policy) (string, error) {
	var l Liveness
	var fenced *time.Time
	var age float64
	var held []int64
	if err := row.Scan(&l.NodeID, &l.Incarnation, &l.Hostname, &l.PID, &l.State, &fenced, &age, &held); err != nil {
		return "", err
	}
	l.HeartbeatAge = time.Duration(age * float64(time.Second))
	l.SessionLock = slices.Contains(held, lockObject(l.Incarnation))
	gone := fenced != nil || l.State == Left || l.State == Dead
	if !l.SessionLock && (gone || l.Dead(policy)) {
		return "", nil
	}
	return fmt.Sprintf("node %s (process %d on %s)", l.NodeID, l.PID, l.Hostname), nil
}
