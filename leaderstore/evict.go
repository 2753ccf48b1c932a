package leaderstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// evictSQL ends the session that holds a role's lock although its lease has run
// out, and with it the tenure. The row stays locked meanwhile, so that a renewal
// that comes at the last moment is not overlooked. Only the process that the row
// names is ended. Every other session is left alone: it may be another
// application's, or a leader of another forge cluster.
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

// Eviction is what became of a session that held a role's lock although its lease
// had run out.
type Eviction struct {
	Role string
	Term int64
	PID  int
	// Holder is the session's application_name.
	Holder string
	// Ended says that the session was ended. Without it and Refused the session is
	// not that of the process which the role's row names.
	Ended bool
	// Schema is that of the holder's cluster, if it is an election session of forge.
	Schema string
	// Refused says that this role may not end it.
	Refused bool
}

// suspect is a role whose lock somebody holds.
type suspect struct {
	lock    Lock
	term    int64
	renewed time.Time // by the database's clock
	since   time.Time // when this was first seen, by our own
	expired time.Time // when the lease was first seen to have run out
}

// suspects remembers what the last looks found of the roles that others hold.
type suspects map[string]suspect

// note takes in what a look at now found.
func (all suspects) note(found suspect, expired bool, now time.Time) {
	before, known := all[found.lock.Role]
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
	all[found.lock.Role] = before
}

// overdue says whether the server should have ended the holder's session and has
// not: its lease has run out, by the database's clock, since at least a moment, and
// nothing has moved for a lease by our own clock, which no one can set.
func (s suspect) overdue(now time.Time, lease, moment time.Duration) bool {
	return !s.expired.IsZero() && now.Sub(s.expired) >= moment && now.Sub(s.since) >= lease
}

// Evict is the backup for a server that does not end a silent leader's session:
// it ends the sessions that the last calls of TryLocks found to hold a role
// beyond its lease, and returns what became of them.
func (s *Session) Evict(ctx context.Context) ([]Eviction, error) {
	var evictions []Eviction
	now := time.Now()
	for role, found := range s.suspects {
		if !found.overdue(now, s.cfg.Lease, s.cfg.CheckInterval/2) {
			continue
		}
		delete(s.suspects, role) // watched anew
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

// evict returns the zero Eviction when nobody holds the lock any more.
func (s *Session) evict(ctx context.Context, found suspect) (Eviction, error) {
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
