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
	// takeRowSQL locks the role's row, and makes it if it is missing: somebody may have
	// deleted it. It is a statement of its own because it may wait for the
	// predecessor's last transaction, and a statement sees other tables as they were
	// before it waited: the next one sees how that transaction left the history.
	takeRowSQL = `
WITH made AS (
    INSERT INTO forge_leaders (role)
    SELECT $1
    WHERE NOT EXISTS (SELECT FROM forge_leaders WHERE role = $1)
    ON CONFLICT DO NOTHING
)
SELECT FROM forge_leaders WHERE role = $1 FOR UPDATE`

	// A lock ($10) says nothing about a term that it did not elect, while the lease of
	// that term lasts. Terms that were won by lease alone, or by a version that did
	// not record the lock, have none in the history.
	// One statement closes the predecessor's tenure, takes the row and opens the
	// new tenure. Terms come from the row and from the history, so that neither
	// alone can bring an old one back.
	// A session that ended within its lease was alive until then; one that the server
	// ended after it had been silent since its last renewal. A session that mints again
	// had its own term lapse.
	mintSQL = `
WITH old AS MATERIALIZED (
    SELECT * FROM forge_leaders l
    WHERE role = $1
      AND (node_id IS NULL OR incarnation = $3 OR lease_until <= clock_timestamp() OR EXISTS (
          SELECT FROM forge_leader_history h WHERE h.role = l.role AND h.term = l.term AND h.lock_id = $10::bigint))
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
), minted AS (
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
    FROM minted m
    RETURNING gap
), noted AS (
    INSERT INTO forge_events (type, node_id, role, term, data)
    SELECT type, node_id, $1, term, data
    FROM (
        SELECT 1 AS turn, 'leader_lost' AS type, c.node_id, c.term, jsonb_build_object('reason', c.end_reason) AS data
        FROM closed c
        UNION ALL
        SELECT 2, 'election_started', $2, m.term, '{}'
        FROM minted m
        UNION ALL
        SELECT 3, 'leader_elected', $2, m.term, jsonb_strip_nulls(jsonb_build_object('gap_ms', round(1000 * extract(epoch FROM r.gap))))
        FROM minted m, recorded r
    ) happened
    ORDER BY turn
)
SELECT m.term, coalesce(extract(epoch FROM r.gap)::float8, -1),
       EXISTS (SELECT FROM forge_leader_history WHERE role = $1 AND incarnation <> $3
               AND term = m.term - 1),
       pg_notify($6, $1), set_config('lock_timeout', '0', true)
FROM minted m, recorded r`

	beginSQL  = "BEGIN ISOLATION LEVEL READ COMMITTED"
	commitSQL = "COMMIT"

	// Settings of the mint's transaction alone: its WAL is waited for, the
	// predecessor's last transaction is not waited for long, and a process that
	// freezes in its midst holds nobody up for longer than a lease. mintSQL ends the
	// lock timeout: the commit of a transaction that notifies waits for every other
	// such commit on the server, in whatever database, and that is no busy row.
	prepareMintSQL = `
SELECT set_config('synchronous_commit', 'on', true), set_config('lock_timeout', $1, true),
       set_config('idle_in_transaction_session_timeout', $2, true)`
)

// rehearse has the server parse now what a mint says, and load what it has to
// know of the tables for that: when a leader has crashed there is no time.
func (s *Session) rehearse(ctx context.Context) error {
	for _, sql := range []string{beginSQL, prepareMintSQL, takeRowSQL, mintSQL, commitSQL} {
		if _, err := s.conn.Prepare(ctx, sql, sql); err != nil {
			return fmt.Errorf("prepare to lead: %w", err)
		}
	}
	return nil
}

// Minted is a new term and what went before it.
type Minted struct {
	Fence Fence
	// Gap is the leaderless time before; negative for a role's first tenure.
	Gap time.Duration
	// Failover is true when the tenure before was another process's.
	Failover bool
}

// Mint makes this session the leader of a role whose lock it holds: it returns
// once the new term is committed. seen tells the history when the predecessor's
// session ended; without it that is its last renewal. ErrBusy leaves the session
// usable.
func (s *Session) Mint(ctx context.Context, role string, seen End) (Minted, error) {
	id := s.ids[role]
	return mint(ctx, s.conn, s.cfg, role, seen, &id)
}

// mint takes the row of a role. lockID is that of the lock which this session holds
// for it; nil: by lease alone.
func mint(ctx context.Context, conn *pgx.Conn, cfg SessionConfig, role string, seen End, lockID *int64) (Minted, error) {
	minted := Minted{Fence: Fence{Role: role, NodeID: cfg.NodeID, Incarnation: cfg.Incarnation}}
	if lockID == nil {
		minted.Fence.Patience = cfg.Lease
	}
	err := mintAtOnce(ctx, conn, role, func(row pgx.Row) error {
		var gap float64
		if err := row.Scan(&minted.Fence.Term, &gap, &minted.Failover, nil, nil); err != nil {
			return err
		}
		minted.Gap = microseconds(gap)
		return nil
	}, []any{milliseconds(cfg.LockTimeout), milliseconds(cfg.Lease)}, []any{
		role, cfg.NodeID, cfg.Incarnation, cfg.APIURL, cfg.Lease,
		cfg.channel(), seen.Incarnation, orNull(seen.At), cfg.Metadata[role], lockID,
	})
	pgErr, refused := errors.AsType[*pgconn.PgError](err)
	if refused && pgErr.Code == "55P03" || errors.Is(err, pgx.ErrNoRows) { // lock_not_available; another was first
		return Minted{}, fmt.Errorf("mint a term of %s: %w", role, ErrBusy)
	}
	if err != nil {
		return Minted{}, fmt.Errorf("mint a term of %s: %w", role, err)
	}
	return minted, nil
}

// mintAtOnce runs the transaction of a mint in one round trip: after a crash each
// one counts.
func mintAtOnce(ctx context.Context, conn *pgx.Conn, role string, read func(pgx.Row) error, settings, values []any) error {
	batch := &pgx.Batch{}
	batch.Queue(beginSQL)
	batch.Queue(prepareMintSQL, settings...)
	batch.Queue(takeRowSQL, role)
	batch.Queue(mintSQL, values...).QueryRow(read)
	batch.Queue(commitSQL)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return errors.Join(err, rollBack(ctx, conn))
	}
	return nil
}

// rollBack ends a transaction that may not have begun. A connection that broke has
// none.
func rollBack(ctx context.Context, conn *pgx.Conn) error {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return nil
	}
	_, err := conn.Exec(ctx, "ROLLBACK")
	return err
}
