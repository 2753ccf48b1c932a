package leaderstore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// Queryer runs read queries: a pool, a connection or a transaction.
type Queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const (
	leadersSQL = `
SELECT role, coalesce(node_id, ''), coalesce(incarnation, ''), term, acquired_at, renewed_at, lease_until,
       coalesce(backend_pid, 0), api_url, timeline, metadata, clock_timestamp()
FROM forge_leaders
ORDER BY array_position(ARRAY['scheduler', 'metrics_aggregator', 'log_compactor'], role), role`

	historySQL = `
SELECT role, term, node_id, incarnation, acquired_at, ended_at, coalesce(end_reason, ''),
       coalesce(extract(epoch FROM gap)::float8, 0), gap IS NOT NULL, timeline,
       EXISTS (SELECT FROM forge_events AS e
               WHERE e.at BETWEEN ended_at AND ended_at + interval '1 min'
                 AND e.type = 'leader_drilled' AND e.role = h.role AND e.term = h.term)
FROM forge_leader_history AS h
WHERE ($1 = '' OR role = $1)
  AND ($3::timestamptz IS NULL OR acquired_at < $3 OR acquired_at = $3 AND role > $4)
ORDER BY acquired_at DESC, role
LIMIT $2`
)

// Leaders returns the rows of all roles, beginning with the built-in ones.
func Leaders(ctx context.Context, db Queryer) ([]Leader, error) {
	rows, err := db.Query(ctx, leadersSQL)
	if err != nil {
		return nil, fmt.Errorf("read the leaders: %w", err)
	}
	leaders, err := pgx.CollectRows(rows, scanLeader)
	if err != nil {
		return nil, fmt.Errorf("read the leaders: %w", err)
	}
	return leaders, nil
}

// History returns at most limit terms of a role ("" for all roles), newest first.
func History(ctx context.Context, db Queryer, role string, limit int) ([]Tenure, error) {
	return HistoryAfter(ctx, db, role, Cursor{}, limit)
}

// Cursor is a position in the history: after the term of Role that began at AcquiredAt.
type Cursor struct {
	AcquiredAt time.Time
	Role       string
}

// HistoryAfter returns the terms after a cursor, or from the newest on for the zero Cursor.
func HistoryAfter(ctx context.Context, db Queryer, role string, after Cursor, limit int) ([]Tenure, error) {
	var at *time.Time
	if !after.AcquiredAt.IsZero() {
		at = &after.AcquiredAt
	}
	rows, err := db.Query(ctx, historySQL, role, limit, at, after.Role)
	if err != nil {
		return nil, fmt.Errorf("read the leadership history: %w", err)
	}
	tenures, err := pgx.CollectRows(rows, scanTenure)
	if err != nil {
		return nil, fmt.Errorf("read the leadership history: %w", err)
	}
	return tenures, nil
}

func scanLeader(row pgx.CollectableRow) (Leader, error) {
	var l Leader
	var acquired, renewed, until *time.Time
	err := row.Scan(&l.Role, &l.NodeID, &l.Incarnation, &l.Term, &acquired, &renewed, &until,
		&l.BackendPID, &l.APIURL, &l.Timeline, &l.Metadata, &l.Now)
	l.AcquiredAt, l.RenewedAt, l.LeaseUntil = orZero(acquired), orZero(renewed), orZero(until)
	return l, err
}

func scanTenure(row pgx.CollectableRow) (Tenure, error) {
	var t Tenure
	var ended *time.Time
	var gap float64
	err := row.Scan(&t.Role, &t.Term, &t.NodeID, &t.Incarnation, &t.AcquiredAt, &ended, &t.EndReason,
		&gap, &t.HasGap, &t.Timeline, &t.Drill)
	t.EndedAt = orZero(ended)
	t.Gap = microseconds(gap)
	return t, err
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// microseconds converts seconds that PostgreSQL computed in whole microseconds.
func microseconds(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds*1e6)) * time.Microsecond
}
