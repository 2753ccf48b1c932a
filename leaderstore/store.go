package leaderstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

const (
	allLeadersSQL = `
SELECT role, coalesce(node_id, ''), coalesce(incarnation, ''), term, acquired_at, renewed_at, lease_until,
       coalesce(backend_pid, 0), api_url, timeline, metadata, clock_timestamp()
FROM forge_leaders`

	leaderSQL = allLeadersSQL + `
WHERE role = $1`

	leadersSQL = allLeadersSQL + `
ORDER BY array_position(ARRAY['scheduler', 'metrics_aggregator', 'log_compactor'], role), role`

	tenureColumns = `role, term, node_id, incarnation, acquired_at, ended_at, coalesce(end_reason, ''),
       coalesce(extract(epoch FROM gap)::float8, 0), gap IS NOT NULL, timeline,
       EXISTS (SELECT FROM forge_events AS e
               WHERE e.at BETWEEN ended_at AND ended_at + interval '1 min'
                 AND e.type = 'leader_drilled' AND e.role = h.role AND e.term = h.term)`

	historySQL = `
SELECT ` + tenureColumns + `
FROM forge_leader_history AS h
WHERE ($1 = '' OR role = $1)
  AND ($3::timestamptz IS NULL OR acquired_at < $3 OR acquired_at = $3 AND role > $4)
  AND ($5::timestamptz IS NULL OR ended_at IS NULL OR ended_at > $5)
  AND ($6::timestamptz IS NULL OR acquired_at - coalesce(gap, '0') < $6)
ORDER BY acquired_at DESC, role
LIMIT $2`

	requestSQL = `
WITH led AS (
    SELECT role, term FROM forge_leaders WHERE role = $1 AND term = $2 AND node_id IS NOT NULL
), asked AS (
    INSERT INTO forge_leader_requests (role, term, target)
    SELECT role, term, nullif($3, '') FROM led
    ON CONFLICT (role) DO UPDATE
    SET term = excluded.term, target = excluded.target, requested_at = clock_timestamp(), reserved_until = NULL
    RETURNING role
)
SELECT pg_notify(current_schema() || '.' || $4, role) FROM asked`

	// The same on a replica of the server, whatever its address.
	databaseIDSQL = `
SELECT system_identifier || '/' || (SELECT oid FROM pg_database WHERE datname = current_database()) || '/' || current_schema()
FROM pg_control_system()`

	withdrawSQL = `DELETE FROM forge_leader_requests WHERE role = $1 AND term = $2 AND reserved_until IS NULL`

	// A term that did not end in order may have left work behind that has not noticed the
	// end, even if the terms after it never began their work. Terms of the same process do
	// not count: a process waits for its own work before it becomes a candidate again.
	takeoverWaitSQL = `
SELECT coalesce(extract(epoch FROM max(next.acquired_at) + $4::interval - clock_timestamp()), 0)::float8
FROM forge_leader_history next
JOIN LATERAL (
    SELECT incarnation, end_reason
    FROM forge_leader_history before
    WHERE before.role = next.role AND before.term < next.term
    ORDER BY term DESC
    LIMIT 1
) lost ON lost.incarnation <> $3
      AND coalesce(lost.end_reason, '') NOT IN ('resigned', 'stepped_down', 'transferred')
WHERE next.role = $1 AND next.term <= $2 AND next.acquired_at > clock_timestamp() - $4::interval`

	publishSQL = `
WITH published AS (
    UPDATE forge_leaders SET metadata = $4
    WHERE role = $1 AND term = $2 AND incarnation = $3
    RETURNING role
)
SELECT pg_notify(current_schema() || '.' || $5, role) FROM published`
)

// ErrTermOver means that the term to hand over has already ended.
var ErrTermOver = errors.New("the term is over")

// Store reads the leaders and their history, and writes requests of operators and the
// metadata of a term. A Session or a LeaseSession writes the terms themselves.
type Store struct{ db postgres.DB }

// New returns the store in a database.
func New(db postgres.DB) *Store { return &Store{db} }

// DatabaseID identifies the cluster's database and schema among those of all servers. It is empty if
// the server does not say.
func (s *Store) DatabaseID(ctx context.Context) (string, error) {
	var id *string
	err := s.db.QueryRow(ctx, databaseIDSQL).Scan(&id)
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && (refused.Code == "42883" || refused.Code == insufficientPrivilege) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("identify the database: %w", err)
	}
	if id == nil {
		return "", nil
	}
	return *id, nil
}

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
	return s.Tenures(ctx, TenureFilter{Role: role, Limit: limit})
}

// Cursor is a position in the history: after the term of Role that began at AcquiredAt.
type Cursor struct {
	AcquiredAt time.Time
	Role       string
}

// TenureFilter selects terms. The zero value of each field but Limit selects all.
type TenureFilter struct {
	Role string
	// From (inclusive) and To (exclusive) select the terms that overlap a time, even if only
	// with the gap before them.
	From, To time.Time
	// After selects the terms after a position.
	After Cursor
	Limit int
}

// Tenures returns the terms that match a filter, newest first.
func (s *Store) Tenures(ctx context.Context, f TenureFilter) ([]Tenure, error) {
	tenures, err := postgres.Collect(ctx, s.db, scanTenure, historySQL,
		f.Role, f.Limit, orNull(f.After.AcquiredAt), f.After.Role, orNull(f.From), orNull(f.To))
	if err != nil {
		return nil, fmt.Errorf("read the leadership history: %w", err)
	}
	return tenures, nil
}

// Request requests that the leader of a term stops its work and hands the role over: to the
// node target, which gets the first try, or to any other node if target is empty.
// ErrTermOver means that the term has already ended.
func (s *Store) Request(ctx context.Context, role string, term int64, target string) error {
	tag, err := s.db.Exec(ctx, requestSQL, role, term, target, wire.LeaderChannel)
	if err != nil {
		return fmt.Errorf("request a hand-over of %s: %w", role, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("request a hand-over of %s: term %d: %w", role, term, ErrTermOver)
	}
	return nil
}

// Withdraw deletes a request on which the leader has not acted.
func (s *Store) Withdraw(ctx context.Context, role string, term int64) error {
	if _, err := s.db.Exec(ctx, withdrawSQL, role, term); err != nil {
		return fmt.Errorf("withdraw the hand-over of %s: %w", role, err)
	}
	return nil
}

// TakeoverWait returns how long work that no transaction fences must wait after it has won
// the term of f. It is zero if every predecessor resigned in order, stepped down or handed
// over, and otherwise the rest of delay since the leadership changed, by the database's
// clock: more than delay if that clock was set back.
func (s *Store) TakeoverWait(ctx context.Context, f Fence, delay time.Duration) (time.Duration, error) {
	var seconds float64
	row := s.db.QueryRow(ctx, takeoverWaitSQL, f.Role, f.Term, f.Incarnation, delay)
	if err := row.Scan(&seconds); err != nil {
		return 0, fmt.Errorf("read the predecessors of %s term %d: %w", f.Role, f.Term, err)
	}
	return max(0, time.Duration(seconds*float64(time.Second))), nil
}

// Publish replaces the metadata in the leader's row for the rest of the term of f. It
// returns ErrDeposed if the term is over.
func (s *Store) Publish(ctx context.Context, f Fence, metadata json.RawMessage) error {
	tag, err := s.db.Exec(ctx, publishSQL, f.Role, f.Term, f.Incarnation, metadata, wire.LeaderChannel)
	if err != nil {
		return fmt.Errorf("publish the metadata of %s: %w", f.Role, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("publish the metadata of %w", f.Refusal(ctx, s.db))
	}
	return nil
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
	t.AcquiredAt, t.EndedAt, t.Gap = t.AcquiredAt.UTC(), postgres.TimeOrZero(ended), microseconds(gap)
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
