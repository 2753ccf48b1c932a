package leaderstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// evictSQL ends the session that holds a role's lock beyond its lease, and the term. The
// row is locked during the statement, so that a late renewal is not lost. Only the process
// that the row names is ended. Any other session may belong to another application or to a
// leader of another forge cluster.
const evictSQL = `
WITH expired AS MATERIALIZED (
    SELECT role, term, node_id, incarnation, renewed_at
    FROM forge_leaders
    WHERE role = $1 AND term = $2 AND (lease_until <= clock_timestamp() OR lease_until IS NULL)
    FOR UPDATE SKIP LOCKED
), holder AS MATERIALIZED (
    SELECT a.pid, a.application_name, coalesce(starts_with(a.application_name, 'forge:' || e.incarnation || ':'), false) AS ours
    FROM expired e
    CROSS JOIN pg_locks k
    JOIN pg_stat_activity a ON a.pid = k.pid
    WHERE k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted
      AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (k.classid::bigint << 32) | k.objid::bigint = $3::bigint
), ended AS MATERIALIZED (
    SELECT pid FROM holder WHERE ours AND pg_terminate_backend(pid)
), vacated AS (
    UPDATE forge_leaders l
    SET node_id = NULL, incarnation = NULL, backend_pid = NULL, api_url = '', metadata = '{}'
    FROM expired e
    WHERE l.role = e.role AND EXISTS (SELECT FROM ended)
), closed AS (
    UPDATE forge_leader_history h
    SET ended_at = greatest(h.acquired_at, e.renewed_at), end_reason = 'evicted'
    FROM expired e
    WHERE h.role = e.role AND h.term = e.term AND h.ended_at IS NULL AND EXISTS (SELECT FROM ended)
    RETURNING h.role, h.term, h.node_id
), lost AS (
    INSERT INTO forge_events (type, node_id, role, term, data)
    SELECT 'leader_lost', c.node_id, c.role, c.term, jsonb_build_object('reason', 'evicted', 'by', $4::text)
    FROM closed c
)
SELECT h.pid, h.application_name, EXISTS (SELECT FROM ended), coalesce(` + clusterOfSQL + `, '')
FROM holder h
LIMIT 1`

const insufficientPrivilege = "42501"

// Eviction is the result of an attempt to end a session that held a role's lock beyond its
// lease.
type Eviction struct {
	Role string
	Term int64
	PID  int
	// Holder is the session's application_name.
	Holder string
	// Ended is true if the session was ended. If Ended and Refused are both false, the
	// session does not belong to the process that the role's row names.
	Ended bool
	// Schema is the schema of the holder's cluster, if the holder is an election session of
	// forge.
	Schema string
	// Refused is true if the database user is not permitted to end the session.
	Refused bool
}

// staleHolder is the holder of a role's lock.
type staleHolder struct {
	lock    Lock
	term    int64
	renewed time.Time // last renewal, by the database's clock
	since   time.Time // first observation of this renewal, by the local clock
	expired time.Time // first observation of the expired lease, by the local clock
}

// staleHolders keeps the last observation of each role that another session holds.
type staleHolders map[string]staleHolder

// record adds an observation.
func (s staleHolders) record(found staleHolder, expired bool, now time.Time) {
	before, known := s[found.lock.Role]
	if !known || before.term != found.term || !before.renewed.Equal(found.renewed) {
		before = found
		before.since = now
	}
	switch {
	case !expired:
		before.expired = time.Time{}
	case before.expired.IsZero():
		before.expired = now
	}
	s[found.lock.Role] = before
}

// overdue reports whether the server should have ended the holder's session: its lease has
// been expired for at least grace by the database's clock, and nothing has changed for one
// lease by the local monotonic clock, which cannot be set.
func (s staleHolder) overdue(now time.Time, lease, grace time.Duration) bool {
	return !s.expired.IsZero() && now.Sub(s.expired) >= grace && now.Sub(s.since) >= lease
}

// Evict ends silent leaders' sessions that the server did not end: those which TryLocks
// found to hold a role beyond its lease. It returns a result for each of them.
func (s *Session) Evict(ctx context.Context) ([]Eviction, error) {
	var evictions []Eviction
	now := time.Now()
	for role, found := range s.staleHolders {
		if !found.overdue(now, s.cfg.Lease, s.cfg.CheckInterval/2) {
			continue
		}
		delete(s.staleHolders, role) // a new observation begins
		eviction, err := s.evict(ctx, found)
		if err != nil {
			return evictions, fmt.Errorf("evict the holder of %s: %w", role, err)
		}
		if eviction != (Eviction{}) {
			evictions = append(evictions, eviction)
		}
	}
	return evictions, nil
}

// evict returns the zero Eviction if the lock is no longer held.
func (s *Session) evict(ctx context.Context, found staleHolder) (Eviction, error) {
	eviction := Eviction{Role: found.lock.Role, Term: found.term}
	row := s.conn.QueryRow(ctx, evictSQL, found.lock.Role, found.term, found.lock.ID, s.cfg.NodeID)
	err := row.Scan(&eviction.PID, &eviction.Holder, &eviction.Ended, &eviction.Schema)
	if errors.Is(err, pgx.ErrNoRows) {
		return Eviction{}, nil
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == insufficientPrivilege {
		eviction.Refused = true
		return eviction, nil
	}
	return eviction, err
}
