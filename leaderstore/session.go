package leaderstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/internal/wire"
)

// SessionConfig configures an election session.
type SessionConfig struct {
	// URL must connect directly to the primary. Only a LeaseSession works through a
	// transaction pooler.
	URL string
	// Schema is the schema of forge's tables.
	Schema string

	NodeID      string
	Incarnation string
	APIURL      string
	// Metadata is published in the leader's row with each new term, by role.
	Metadata map[string]json.RawMessage

	// Lease is how long the server keeps a silent session, and with it every lock.
	Lease time.Duration
	// CheckInterval is how often a standby sends a statement. The session survives three
	// intervals of silence.
	CheckInterval time.Duration
	// LockTimeout limits the wait for the predecessor's last transaction.
	LockTimeout time.Duration

	// NodeLockClass and NodeLockObject are the keys of the session-level lock by which
	// other nodes see that this process is alive.
	NodeLockClass, NodeLockObject int32
}

// Lock is a role and the id of its advisory lock.
type Lock struct {
	Role string
	ID   int64
	// BySchema means that the session adds the lock offset of the schema to ID, so that
	// clusters in one database do not share locks.
	BySchema bool
	// OnlyOnRequest means that the lock is tried only if an operator requested a transfer
	// to this node, or if another node has led since the term HandedOverTerm. A
	// HandedOverTerm of 0 disables the second condition.
	OnlyOnRequest  bool
	HandedOverTerm int64
}

// Held is a term of this session.
type Held struct {
	Role string
	Term int64
	// Note, if not empty, is the JSON data of an event lease_renewed that is recorded with
	// the renewal.
	Note string
}

// Session is the single connection on which a node runs the elections of all its roles. It
// is not safe for concurrent use. It must be closed after any error except ErrBusy: the
// server then frees its locks.
type Session struct {
	conn         *pgx.Conn
	cfg          SessionConfig
	nodeLock     bool
	staleHolders staleHolders
	offset       int64            // added to the lock ids
	ids          map[string]int64 // ids of the tried locks by role
}

// ErrUnfit means that this connection cannot be used for elections. A retry does not help.
var ErrUnfit = errors.New("unfit for elections")

// ErrBusy means that the role cannot be acquired or resigned now, because another node was
// first or the last transaction of the term still locks the row. A timeout of its own ends
// that transaction.
var ErrBusy = errors.New("the role's row is locked by the last transaction of its term")

const (
	connectionCheckSQL = `SELECT set_config('client_connection_check_interval', $1, false)`

	seedRolesSQL = `INSERT INTO forge_leaders (role) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING`

	nodeLockSQL = `SELECT pg_try_advisory_lock($1::int, $2::int)`

	// The statement that wins a lock also sets idle_session_timeout to the lease, so a
	// leader's session never survives a longer silence. While a role is reserved, only the
	// target of the transfer tries its lock. A lock does not prove that a term has ended
	// that was not won with this lock, for instance a term won by lease alone or under
	// another lock id. Such a role is not tried until its lease has expired.
	tryLocksSQL = `
SELECT wanted.role, id,
       CASE WHEN pg_try_advisory_lock(id)
            THEN set_config('idle_session_timeout', $3, false) IS NOT NULL
            ELSE false END,
       coalesce(l.term, 0), l.renewed_at, coalesce(l.lease_until <= clock_timestamp(), true)
FROM unnest($1::text[], $2::bigint[], $5::boolean[], $6::bigint[]) AS wanted (role, id, if_asked, left_at)
LEFT JOIN forge_leaders l USING (role)
LEFT JOIN forge_leader_requests r ON r.role = wanted.role AND r.reserved_until > clock_timestamp()
WHERE coalesce(r.target = $4, NOT if_asked OR left_at > 0 AND l.term > left_at)
  AND (l.node_id IS NOT NULL AND l.lease_until > clock_timestamp() AND NOT EXISTS (
           SELECT FROM forge_leader_history h WHERE h.role = l.role AND h.term = l.term AND h.lock_id = wanted.id)) IS NOT TRUE`

	unlockSQL = `SELECT pg_advisory_unlock($1), pg_notify($2, $3)`

	idleTimeoutSQL = `SELECT set_config('idle_session_timeout', $1, false)`

	renewSQL = `
WITH renewed AS (
UPDATE forge_leaders l
SET renewed_at = clock_timestamp(), lease_until = clock_timestamp() + $3::interval
FROM unnest($1::text[], $2::bigint[]) AS held (role, term)
LEFT JOIN forge_leader_requests r ON r.role = held.role AND r.term = held.term
WHERE l.role = held.role AND l.term = held.term
  AND l.incarnation = $4 AND l.backend_pid = pg_backend_pid()
RETURNING l.role, r.role IS NOT NULL AS asked, coalesce(r.target, '') AS target, l.node_id, l.term
)` + noteRenewalsSQL

	noteRenewalsSQL = `, noted AS (
    INSERT INTO forge_events (type, node_id, role, term, data)
    SELECT 'lease_renewed', r.node_id, r.role, r.term, n.note::jsonb
    FROM renewed r
    JOIN unnest($1::text[], $5::text[]) AS n (role, note) ON n.role = r.role
    WHERE n.note <> ''
)
SELECT role, asked, target FROM renewed`

	// A fenced transaction locks the row and can still commit after its client has gone.
	// With $8, the role is not vacated while that transaction runs, and the statement does
	// not wait for it, because the session serves several roles.
	vacateSQL = `
WITH free AS (
    SELECT role FROM forge_leaders
    WHERE role = $1 AND term = $2 AND incarnation = $3
    FOR UPDATE SKIP LOCKED
), vacated AS (
    UPDATE forge_leaders
    SET node_id = NULL, incarnation = NULL, backend_pid = NULL, api_url = '', metadata = '{}',
        renewed_at = clock_timestamp(), lease_until = clock_timestamp()
    WHERE role = $1 AND term = $2 AND incarnation = $3 AND (NOT $8 OR EXISTS (SELECT FROM free))
    RETURNING role, term, renewed_at
), closed AS (
    UPDATE forge_leader_history h
    SET ended_at = v.renewed_at, end_reason = $4
    FROM vacated v
    WHERE h.role = v.role AND h.term = v.term AND h.ended_at IS NULL
), lost AS (
    INSERT INTO forge_events (type, node_id, role, term, data)
    SELECT 'leader_lost', $5, v.role, v.term, jsonb_build_object('reason', $4::text)
    FROM vacated v
), reserved AS (
    UPDATE forge_leader_requests r
    SET reserved_until = clock_timestamp() + $7::interval
    FROM vacated v
    WHERE r.role = v.role AND r.term = v.term
), ended AS (
    SELECT EXISTS (SELECT FROM vacated) OR
           NOT EXISTS (SELECT FROM forge_leaders WHERE role = $1 AND term = $2 AND incarnation = $3) AS over
)`

	// The same statement unlocks: a node that wins the lock before this commits waits for
	// the row.
	resignSQL = vacateSQL + `
SELECT over, CASE WHEN over THEN pg_advisory_unlock($9) END, CASE WHEN over THEN pg_notify($6, $1) END FROM ended`
)

// OpenSession connects, checks that the connection is suitable for elections, and inserts
// missing rows of the roles.
func OpenSession(ctx context.Context, cfg SessionConfig, roles []string) (*Session, error) {
	s := &Session{cfg: cfg, staleHolders: staleHolders{}, ids: map[string]int64{}}
	var err error
	s.conn, err = connect(ctx, cfg, closeLast, func(ctx context.Context, conn *pgx.Conn) error { return s.prepare(ctx, conn, roles) })
	if err != nil {
		return nil, fmt.Errorf("open the election session: %w", err)
	}
	return s, nil
}

// ApplicationName returns the application_name of a node's connections, by which the
// sessions of a fenced process are found. PostgreSQL keeps 63 bytes.
func ApplicationName(nodeID, incarnation string) string {
	name := "forge:" + incarnation + ":" + nodeID
	return name[:min(len(name), 63)]
}

// prepare takes few round trips, because a role may be free meanwhile. The cluster's lock comes
// first: it may have to wait, and must not hold other locks then.
func (s *Session) prepare(ctx context.Context, conn *pgx.Conn, roles []string) error {
	if err := watchConnection(ctx, conn, connectionCheckInterval); err != nil {
		return err
	}
	var batch pgx.Batch
	batch.Queue(clusterLockSQL, clusterLockClass)
	batch.Queue("LISTEN " + pgx.Identifier{s.cfg.channel()}.Sanitize())
	batch.Queue(seedRolesSQL, roles)
	batch.Queue(lockOffsetSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&s.offset) })
	batch.Queue(nodeLockSQL, s.cfg.NodeLockClass, s.cfg.NodeLockObject).QueryRow(func(row pgx.Row) error { return row.Scan(&s.nodeLock) })
	batch.Queue(idleTimeoutSQL, s.cfg.standbyIdleTimeout())
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("prepare the session: %w", err)
	}
	return nil
}

// connectionCheckInterval is how often the server checks, during a statement, that the
// client of an election session is alive.
const connectionCheckInterval = 200 * time.Millisecond

// watchConnection makes the server notice a dead client during a statement. Not every
// platform supports this; there, the statement ends first.
func watchConnection(ctx context.Context, conn *pgx.Conn, every time.Duration) error {
	const once = pgx.QueryExecModeExec // in one round trip
	_, err := conn.Exec(ctx, connectionCheckSQL, once, strconv.FormatInt(every.Milliseconds(), 10))
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "22023" { // invalid_parameter_value
		return nil
	}
	if err != nil {
		return fmt.Errorf("set client_connection_check_interval: %w", err)
	}
	return nil
}

// lockNode acquires the lock by which other nodes see that this process is alive. If the
// broken session that this one replaces still holds it, a later call tries again.
func (s *Session) lockNode(ctx context.Context) error {
	if s.nodeLock {
		return nil
	}
	err := s.conn.QueryRow(ctx, nodeLockSQL, s.cfg.NodeLockClass, s.cfg.NodeLockObject).Scan(&s.nodeLock)
	if err != nil {
		return fmt.Errorf("acquire the node's lock: %w", err)
	}
	return nil
}

// TryLocks tries locks that this session does not hold and returns the roles whose locks it
// won. It does not wait for locks.
func (s *Session) TryLocks(ctx context.Context, locks []Lock) ([]string, error) {
	if err := s.lockNode(ctx); err != nil {
		return nil, err
	}
	roles := make([]string, len(locks))
	ids := make([]int64, len(locks))
	onRequest := make([]bool, len(locks))
	handedOver := make([]int64, len(locks))
	for i, lock := range locks {
		roles[i], ids[i], onRequest[i], handedOver[i] = lock.Role, lock.At(s.offset).ID, lock.OnlyOnRequest, lock.HandedOverTerm
		s.ids[lock.Role] = ids[i]
	}
	if err := s.checkDistinct(); err != nil {
		return nil, err
	}
	rows, err := s.conn.Query(ctx, tryLocksSQL, roles, ids, milliseconds(s.cfg.Lease), s.cfg.NodeID, onRequest, handedOver)
	if err != nil {
		return nil, fmt.Errorf("try the locks: %w", err)
	}
	var won []string
	var found staleHolder
	var renewed *time.Time
	var got, expired bool
	now := time.Now()
	columns := []any{&found.lock.Role, &found.lock.ID, &got, &found.term, &renewed, &expired}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		if got {
			won = append(won, found.lock.Role)
			delete(s.staleHolders, found.lock.Role)
			return nil
		}
		found.renewed = postgres.TimeOrZero(renewed)
		s.staleHolders.record(found, expired, now)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("try the locks: %w", err)
	}
	if len(won) == 0 {
		return nil, s.warmUp(ctx)
	}
	return won, nil
}

// checkDistinct rejects two roles with the same lock, because each would keep the other
// from being led. The configuration check cannot find this, because it does not include the
// offset of the schema.
func (s *Session) checkDistinct() error {
	roles := make(map[int64]string, len(s.ids))
	for role, id := range s.ids {
		if other, taken := roles[id]; taken {
			return fmt.Errorf("%w: roles %s and %s have the same lock id %d in this schema; give one another lock_id",
				ErrUnfit, min(role, other), max(role, other), id)
		}
		roles[id] = role
	}
	return nil
}

// Unlock releases a lock for which no term was acquired, and notifies the nodes that may have
// tried it meanwhile: one of them may be the target of a transfer.
func (s *Session) Unlock(ctx context.Context, lock Lock) error {
	if _, err := s.conn.Exec(ctx, unlockSQL, lock.At(s.offset).ID, s.cfg.channel(), lock.Role); err != nil {
		return fmt.Errorf("unlock %s: %w", lock.Role, err)
	}
	return nil
}

// Renewed is a confirmed term with the hand-over that an operator may have requested.
type Renewed struct {
	Role string
	// HandOver requests that the leader stops and resigns.
	HandOver bool
	// Target is the node that should lead next; empty: any other node.
	Target string
}

// Renew extends the lease of every held term and returns the confirmed terms. If the session
// does not hold the node's lock, it tries to acquire it: a node that leads all of its roles
// does not call TryLocks, and without the lock no deputy can watch it.
func (s *Session) Renew(ctx context.Context, held []Held) ([]Renewed, error) {
	still, err := renew(ctx, s.conn, renewSQL, s.cfg, held)
	if err != nil {
		return nil, err
	}
	return still, s.lockNode(ctx)
}

func renew(ctx context.Context, conn *pgx.Conn, sql string, cfg SessionConfig, held []Held) ([]Renewed, error) {
	roles := make([]string, len(held))
	terms := make([]int64, len(held))
	notes := make([]string, len(held))
	for i, h := range held {
		roles[i], terms[i], notes[i] = h.Role, h.Term, h.Note
	}
	rows, err := conn.Query(ctx, sql, roles, terms, cfg.Lease, cfg.Incarnation, notes)
	if err != nil {
		return nil, fmt.Errorf("renew the lease: %w", err)
	}
	still, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Renewed])
	if err != nil {
		return nil, fmt.Errorf("renew the lease: %w", err)
	}
	return still, nil
}

// Resign vacates the role, records the reason, frees the lock and notifies the standbys.
// The work of the term must have stopped. ErrBusy means that the server has not finished
// all of it, for instance a commit whose client has gone.
func (s *Session) Resign(ctx context.Context, lock Lock, term int64, reason string) error {
	return vacate(ctx, s.conn, resignSQL, s.cfg, lock.Role, term, reason, true, lock.At(s.offset).ID)
}

// ForceResign resigns even if a transaction of the term still runs. Until that transaction
// has ended, no other node can lead.
func (s *Session) ForceResign(ctx context.Context, lock Lock, term int64, reason string) error {
	return vacate(ctx, s.conn, resignSQL, s.cfg, lock.Role, term, reason, false, lock.At(s.offset).ID)
}

func vacate(ctx context.Context, conn *pgx.Conn, sql string, cfg SessionConfig, role string, term int64, reason string, waits bool, more ...any) error {
	args := append([]any{role, term, cfg.Incarnation, reason, cfg.NodeID, cfg.channel(), cfg.reservation(), waits}, more...)
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("resign %s: %w", role, err)
	}
	over, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (over bool, err error) {
		return over, row.Scan(&over, nil, nil)
	})
	if err != nil {
		return fmt.Errorf("resign %s: %w", role, err)
	}
	if !over {
		return fmt.Errorf("resign %s: %w", role, ErrBusy)
	}
	return nil
}

// ResetIdleTimeout sets the idle timeout of a standby, after the last role was resigned.
func (s *Session) ResetIdleTimeout(ctx context.Context) error {
	return setIdleTimeout(ctx, s.conn, s.cfg)
}

// setIdleTimeout sets the idle timeout of a standby.
func setIdleTimeout(ctx context.Context, conn *pgx.Conn, cfg SessionConfig) error {
	if _, err := conn.Exec(ctx, idleTimeoutSQL, cfg.standbyIdleTimeout()); err != nil {
		return fmt.Errorf("set the idle timeout: %w", err)
	}
	return nil
}

// Wait blocks until the leadership of a role changes, the connection breaks or ctx ends.
// The end of ctx is not an error.
func (s *Session) Wait(ctx context.Context) (notified bool, err error) {
	_, err = s.conn.WaitForNotification(ctx)
	if err == nil {
		return true, nil
	}
	if ctx.Err() != nil && !s.conn.IsClosed() {
		return false, nil
	}
	return false, fmt.Errorf("wait on the election session: %w", err)
}

// Close ends the session at once. The server then frees all of its locks.
func (s *Session) Close() { postgres.CloseNow(s.conn) }

// channel is the notification channel of leadership changes.
func (cfg SessionConfig) channel() string { return wire.Channel(cfg.Schema, wire.LeaderChannel) }

// reservation is how long a vacated role is reserved for the target of a transfer: slightly
// less than the check interval of the other nodes.
func (cfg SessionConfig) reservation() time.Duration { return cfg.CheckInterval * 9 / 10 }

// standbyIdleTimeout is how long the server keeps the session of a silent standby.
func (cfg SessionConfig) standbyIdleTimeout() string {
	return milliseconds(max(cfg.Lease, 3*cfg.CheckInterval))
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
