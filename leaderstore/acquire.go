package leaderstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// lockRowSQL locks the role's row and inserts it if it was deleted. It is a separate
	// statement because it may wait for the predecessor's last transaction. A statement
	// that waits sees other tables as they were before the wait; the next statement sees
	// the history as that transaction left it.
	lockRowSQL = `
WITH made AS (
    INSERT INTO forge_leaders (role)
    SELECT $1
    WHERE NOT EXISTS (SELECT FROM forge_leaders WHERE role = $1)
    ON CONFLICT DO NOTHING
)
SELECT FROM forge_leaders WHERE role = $1 FOR UPDATE`

	// A lock ($10) does not prove that a term has ended that was not won with this lock,
	// while the lease of that term lasts. Terms that were won by lease alone, or by a
	// version that did not record the lock, have no lock in the history.
	//
	// A resignation frees the lock before it commits, so the lock may have been won by a
	// node that could not see yet for whom the role is reserved.
	//
	// One statement closes the predecessor's history row, updates the leader row and
	// inserts the new history row. The new term is higher than the terms of both tables, so
	// neither table alone can restore an old term.
	//
	// A session that ended within its lease was alive until then. A session that the server
	// ended after its lease was silent since its last renewal. If the session itself held
	// the previous term, that term had lapsed.
	//
	// The events have the times at which the end was noticed (by a deputy, or else by this
	// transaction), the election started and the new term began.
	acquireTermSQL = `
WITH old AS MATERIALIZED (
    SELECT * FROM forge_leaders l
    WHERE role = $1
      AND (node_id IS NULL OR incarnation = $3 OR lease_until <= clock_timestamp() OR EXISTS (
          SELECT FROM forge_leader_history h WHERE h.role = l.role AND h.term = l.term AND h.lock_id = $10::bigint))
      AND NOT EXISTS (
          SELECT FROM forge_leader_requests r WHERE r.role = l.role AND r.reserved_until > clock_timestamp() AND r.target <> $2)
    FOR UPDATE
), closed AS (
    UPDATE forge_leader_history h
    SET ended_at = greatest(h.acquired_at, o.renewed_at,
            CASE WHEN h.incarnation = $7 AND $8::timestamptz < o.lease_until THEN $8 END),
        end_reason = CASE
            WHEN o.node_id IS NULL OR o.term <> h.term THEN 'unknown'
            WHEN pg_postmaster_start_time() > o.renewed_at THEN 'database_lost'
            WHEN o.backend_pid = pg_backend_pid() THEN 'lease_expired'
            WHEN o.lease_until > clock_timestamp() THEN 'crashed'
            ELSE 'lease_expired' END
    FROM old o
    WHERE h.role = $1 AND h.ended_at IS NULL
    RETURNING h.node_id, h.incarnation, h.term, h.ended_at, h.end_reason
), acquired AS (
    UPDATE forge_leaders l
    SET node_id = $2, incarnation = $3, api_url = $4,
        backend_pid = CASE WHEN $10::bigint IS NOT NULL THEN pg_backend_pid() END,
        term = 1 + greatest(o.term, (SELECT coalesce(max(term), 0) FROM forge_leader_history WHERE role = $1)),
        acquired_at = clock_timestamp(), renewed_at = clock_timestamp(),
        lease_until = clock_timestamp() + $5::interval, metadata = coalesce($9::jsonb, '{}'),
        timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
    FROM old o
    WHERE l.role = o.role
    RETURNING l.term, l.acquired_at, l.timeline
), recorded AS (
    INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, timeline, lock_id, gap)
    SELECT $1, m.term, $2, $3, m.acquired_at, m.timeline, $10,
           m.acquired_at - coalesce((SELECT max(ended_at) FROM closed),
                                    (SELECT max(ended_at) FROM forge_leader_history WHERE role = $1))
    FROM acquired m
    RETURNING gap
), noted AS (
    INSERT INTO forge_events (at, type, node_id, role, term, data)
    SELECT at, type, node_id, $1, term, data
    FROM (
        SELECT 1 AS turn, greatest(c.ended_at, CASE WHEN c.incarnation = $7 THEN least($8::timestamptz, now()) ELSE now() END) AS at,
               'leader_lost' AS type, c.node_id, c.term, jsonb_build_object('reason', c.end_reason) AS data
        FROM closed c
        UNION ALL
        SELECT 2, now(), 'election_started', $2, m.term, '{}'
        FROM acquired m
        UNION ALL
        SELECT 3, m.acquired_at, 'leader_elected', $2, m.term, jsonb_strip_nulls(jsonb_build_object('gap_ms', round(1000 * extract(epoch FROM r.gap))))
        FROM acquired m, recorded r
    ) happened
    ORDER BY turn
)
SELECT m.term, coalesce(extract(epoch FROM r.gap)::float8, -1),
       EXISTS (SELECT FROM forge_leader_history WHERE role = $1 AND incarnation <> $3
               AND term = m.term - 1),
       pg_notify($6, $1), set_config('lock_timeout', '0', true)
FROM acquired m, recorded r`

	beginSQL  = "BEGIN ISOLATION LEVEL READ COMMITTED"
	commitSQL = "COMMIT"

	// Settings of the transaction that acquires a term. It waits for its WAL. It does not
	// wait long for the predecessor's last transaction. If the process freezes, the
	// transaction blocks others for at most a lease. acquireTermSQL resets the lock
	// timeout, because a commit with a notification waits for every other such commit on
	// the server, in any database, and that must not be reported as a busy row.
	prepareAcquireSQL = `
SELECT set_config('synchronous_commit', 'on', true), set_config('lock_timeout', $1, true),
       set_config('idle_in_transaction_session_timeout', $2, true)`
)

// warmUp makes the server parse the statements of acquireTerm and load the catalog entries in
// advance, for a standby: after a crash of the leader, this would cost time. Only the first call
// sends anything.
func (s *Session) warmUp(ctx context.Context) error {
	for _, sql := range []string{beginSQL, prepareAcquireSQL, lockRowSQL, acquireTermSQL, commitSQL} {
		if _, err := s.conn.Prepare(ctx, sql, sql); err != nil {
			return fmt.Errorf("prepare the election statements: %w", err)
		}
	}
	return nil
}

// AcquiredTerm is a new term and how the previous one ended.
type AcquiredTerm struct {
	Fence Fence
	// Gap is the time without a leader before the term; negative for a role's first term.
	Gap time.Duration
	// Failover is true if the previous term was held by another process.
	Failover bool
}

// AcquireTerm makes this session the leader of a role whose lock it holds. It returns once
// the new term is committed. seen is the observed end of the predecessor's session; without
// it, the history uses the last renewal. ErrBusy means that another node was first, that
// the role is reserved for another node, or that the last transaction of the previous term
// has not ended. The session remains usable after it.
func (s *Session) AcquireTerm(ctx context.Context, role string, seen SessionEnd) (AcquiredTerm, error) {
	id := s.ids[role]
	return acquireTerm(ctx, s.conn, s.cfg, role, seen, &id)
}

// acquireTerm acquires a term. lockID is the lock that this session holds for the role, or
// nil for elections by lease alone.
func acquireTerm(ctx context.Context, conn *pgx.Conn, cfg SessionConfig, role string, seen SessionEnd, lockID *int64) (AcquiredTerm, error) {
	acquired := AcquiredTerm{Fence: Fence{Role: role, NodeID: cfg.NodeID, Incarnation: cfg.Incarnation}}
	if lockID == nil {
		acquired.Fence.IdleTimeout = cfg.Lease
	}
	err := acquireInOneRoundTrip(ctx, conn, role, func(row pgx.Row) error {
		var gap float64
		if err := row.Scan(&acquired.Fence.Term, &gap, &acquired.Failover, nil, nil); err != nil {
			return err
		}
		acquired.Gap = microseconds(gap)
		return nil
	}, []any{milliseconds(cfg.LockTimeout), milliseconds(cfg.Lease)}, []any{
		role, cfg.NodeID, cfg.Incarnation, cfg.APIURL, cfg.Lease,
		cfg.channel(), seen.Incarnation, orNull(seen.At), cfg.Metadata[role], lockID,
	})
	pgErr, refused := errors.AsType[*pgconn.PgError](err)
	if refused && pgErr.Code == "55P03" || errors.Is(err, pgx.ErrNoRows) { // lock_not_available; another node was first, or the role is reserved
		return AcquiredTerm{}, fmt.Errorf("acquire a term of %s: %w", role, ErrBusy)
	}
	if err != nil {
		return AcquiredTerm{}, fmt.Errorf("acquire a term of %s: %w", role, err)
	}
	return acquired, nil
}

// acquireInOneRoundTrip runs the transaction in a single round trip to keep failovers
// short.
func acquireInOneRoundTrip(ctx context.Context, conn *pgx.Conn, role string, read func(pgx.Row) error, settings, values []any) error {
	batch := &pgx.Batch{}
	batch.Queue(beginSQL)
	batch.Queue(prepareAcquireSQL, settings...)
	batch.Queue(lockRowSQL, role)
	batch.Queue(acquireTermSQL, values...).QueryRow(read)
	batch.Queue(commitSQL)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return errors.Join(err, rollBack(ctx, conn))
	}
	return nil
}

// rollBack ends a transaction if one was begun. A broken connection has none.
func rollBack(ctx context.Context, conn *pgx.Conn) error {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return nil
	}
	_, err := conn.Exec(ctx, "ROLLBACK")
	return err
}
