package leaderstore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

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

// Store reads the leaders and their history, and writes requests of operators. Terms are
// written by a Session, a LeaseSession or their Fence.
type Store struct{ db postgres.DB }

// New returns the store in a database.
func New(db postgres.DB) *Store { return &Store{db} }

// Leaders returns the rows of all roles, beginning with the built-in ones.
func (s *Store) Leaders(ctx context.Context) ([]Leader, error) {
	leaders, err := postgres.Collect(ctx, s.db, scanLeader, leadersSQL)
	if err != nil {
		return nil, fmt.Errorf("read the leaders: %w", err)
	}
	return leaders, nil
}

// History returns at most limit terms of a role ("" for all roles), newest first.
func (s *Store) History(ctx context.Context, role string, limit int) ([]Tenure, error) {
	return s.HistoryAfter(ctx, role, Cursor{}, limit)
}

// Cursor is a position in the history: after the term of Role that began at AcquiredAt.
type Cursor struct {
	AcquiredAt time.Time
	Role       string
}

// HistoryAfter returns the terms after a cursor, or from the newest on for the zero Cursor.
func (s *Store) HistoryAfter(ctx context.Context, role string, after Cursor, limit int) ([]Tenure, error) {
	tenures, err := postgres.Collect(ctx, s.db, scanTenure, historySQL, role, limit, orNull(after.AcquiredAt), after.Role)
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
	l.AcquiredAt, l.RenewedAt, l.LeaseUntil = postgres.TimeOrZero(acquired), postgres.TimeOrZero(renewed), postgres.TimeOrZero(until)
	return l, err
}

func scanTenure(row pgx.CollectableRow) (Tenure, error) {
	var t Tenure
	var ended *time.Time
	var gap float64
	err := row.Scan(&t.Role, &t.Term, &t.NodeID, &t.Incarnation, &t.AcquiredAt, &ended, &t.EndReason,
		&gap, &t.HasGap, &t.Timeline, &t.Drill)
	t.EndedAt = postgres.TimeOrZero(ended)
	t.Gap = microseconds(gap)
	return t, err
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
