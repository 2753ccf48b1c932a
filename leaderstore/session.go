package leaderstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forge-scheduler/forge/internal/wire"
)

// minServerVersion is the first PostgreSQL with idle_session_timeout.
const minServerVersion = 140000

// SessionConfig says how the election's dedicated session is opened.
type SessionConfig struct {
	// URL must lead straight to the primary, never through a transaction pooler.
	URL string
	// Schema that holds forge's tables.
	Schema string

	NodeID      string
	Incarnation string
	APIURL      string

	// Lease is how long the server keeps the session, and with it every lock,
	// when nothing is heard from this process.
	Lease time.Duration
	// CheckInterval is how often a standby speaks; the session outlives three.
	CheckInterval time.Duration
	// LockTimeout bounds the wait for the predecessor's last transaction.
	LockTimeout time.Duration

	// NodeLockClass and NodeLockObject are the keys of the session-level lock
	// that shows the rest of the cluster that this process lives.
	NodeLockClass, NodeLockObject int32
}

// Lock is a role and the id of its advisory lock.
type Lock struct {
	Role string
	ID   int64
}

// Held is a term that this session leads.
type Held struct {
	Role string
	Term int64
}

// Session is the one connection on which a node elects and leads all its roles.
// It is not safe for concurrent use. After any error but ErrBusy it must be
// closed: the server then frees its locks.
type Session struct {
	conn     *pgx.Conn
	cfg      SessionConfig
	channel  string
	nodeLock bool
}

// ErrUnfit says that the database cannot hold an election session as it is
// reached; trying again does not help.
var ErrUnfit = errors.New("unfit for elections")

// ErrBusy says that the predecessor's last transaction still holds the role's
// row; its own time-out ends it.
var ErrBusy = errors.New("the role's row is locked by the predecessor's last transaction")

const (
	openedSQL = `
SELECT pg_backend_pid(), current_setting('server_version_num')::int, current_setting('idle_session_timeout') <> '0'`

	connectionCheckSQL = `SELECT set_config('client_connection_check_interval', '200', false)`

	seedRolesSQL = `INSERT INTO forge_leaders (role) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING`

	nodeLockSQL = `SELECT pg_try_advisory_lock($1::int, $2::int)`

	// The statement that wins a lock also shortens the session's patience to
	// the lease, so there is no instant at which a leader's session lives longer.
	// A role that is being transferred is its target's to try first.
	tryLocksSQL = `
SELECT role, CASE WHEN pg_try_advisory_lock(id)
                  THEN set_config('idle_session_timeout', $3, false) IS NOT NULL
                  ELSE false END
FROM unnest($1::text[], $2::bigint[]) AS wanted (role, id)
WHERE NOT EXISTS (
    SELECT FROM forge_leader_requests r
    WHERE r.role = wanted.role AND r.target <> $4 AND r.reserved_until > clock_timestamp())`

	unlockSQL = `SELECT pg_advisory_unlock($1)`

	patienceSQL = `SELECT set_config('idle_session_timeout', $1, false)`

	// One statement closes the predecessor's tenure, takes the row and opens the
	// new tenure. Terms come from the row and from the history, so that neither
	// alone can bring an old one back.
	mintSQL = `
WITH old AS MATERIALIZED (
    SELECT * FROM forge_leaders WHERE role = $1 FOR UPDATE
), closed AS (
    UPDATE forge_leader_history h
    SET ended_at = greatest(h.acquired_at, o.renewed_at, CASE WHEN h.incarnation = $7 THEN $8::timestamptz END),
        end_reason = CASE
            WHEN o.node_id IS NULL OR o.term <> h.term THEN 'unknown'
            WHEN pg_postmaster_start_time() > o.renewed_at THEN 'database_lost'
            WHEN o.lease_until > clock_timestamp() THEN 'crashed'
            ELSE 'lease_expired' END
    FROM old o
    WHERE h.role = $1 AND h.ended_at IS NULL
    RETURNING h.node_id, h.incarnation, h.term, h.ended_at, h.end_reason
), minted AS (
    UPDATE forge_leaders l
    SET node_id = $2, incarnation = $3, api_url = $4, backend_pid = pg_backend_pid(),
        term = 1 + greatest(o.term, (SELECT coalesce(max(term), 0) FROM forge_leader_history WHERE role = $1)),
        acquired_at = clock_timestamp(), renewed_at = clock_timestamp(),
        lease_until = clock_timestamp() + $5::interval,
        timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
    FROM old o
    WHERE l.role = o.role
    RETURNING l.term, l.acquired_at, l.timeline
), recorded AS (
    INSERT INTO forge_leader_history (role, term, node_id, incarnation, acquired_at, timeline, gap)
    SELECT $1, m.term, $2, $3, m.acquired_at, m.timeline,
           m.acquired_at - coalesce((SELECT max(ended_at) FROM closed),
                                    (SELECT max(ended_at) FROM forge_leader_history WHERE role = $1))
    FROM minted m
    RETURNING gap
), lost AS (
    INSERT INTO forge_events (type, node_id, role, term, data)
    SELECT 'leader_lost', c.node_id, $1, c.term, jsonb_build_object('reason', c.end_reason)
    FROM closed c
), elected AS (
    INSERT INTO forge_events (type, node_id, role, term, data)
    SELECT 'leader_elected', $2, $1, m.term,
           jsonb_build_object('gap_ms', round(1000 * extract(epoch FROM r.gap)))
    FROM minted m, recorded r
)
SELECT m.term, coalesce(extract(epoch FROM r.gap)::float8, -1),
       EXISTS (SELECT FROM forge_leader_history WHERE role = $1 AND incarnation <> $3
               AND term = m.term - 1),
       pg_is_in_recovery(), pg_notify($6, $1)
FROM minted m, recorded r`

	renewSQL = `
UPDATE forge_leaders l
SET renewed_at = clock_timestamp(), lease_until = clock_timestamp() + $3::interval
FROM unnest($1::text[], $2::bigint[]) AS held (role, term)
LEFT JOIN forge_leader_requests r ON r.role = held.role AND r.term = held.term
WHERE l.role = held.role AND l.term = held.term
  AND l.incarnation = $4 AND l.backend_pid = pg_backend_pid()
RETURNING l.role, r.role IS NOT NULL, coalesce(r.target, '')`

	// The unlock is in the same statement: whoever wins the lock before this
	// commits waits for the row.
	resignSQL = `
WITH vacated AS (
    UPDATE forge_leaders
    SET node_id = NULL, incarnation = NULL, backend_pid = NULL, api_url = '',
        renewed_at = clock_timestamp(), lease_until = clock_timestamp()
    WHERE role = $1 AND term = $2 AND incarnation = $3
    RETURNING role, term
), closed AS (
    UPDATE forge_leader_history h
    SET ended_at = clock_timestamp(), end_reason = $4
    FROM vacated v
    WHERE h.role = v.role AND h.term = v.term AND h.ended_at IS NULL
), lost AS (
    INSERT INTO forge_events (type, node_id, role, term, data)
    SELECT 'leader_lost', $5, v.role, v.term, jsonb_build_object('reason', $4::text)
    FROM vacated v
), reserved AS (
    UPDATE forge_leader_requests r
    SET reserved_until = clock_timestamp() + $8::interval
    FROM vacated v
    WHERE r.role = v.role AND r.term = v.term
)
SELECT pg_advisory_unlock($6), pg_notify($7, $1)`
)

// OpenSession connects, checks that the connection is what an election needs,
// and makes sure that the roles have their rows.
func OpenSession(ctx context.Context, cfg SessionConfig, roles []string) (*Session, error) {
	conn, err := connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the election session: %w", err)
	}
	s := &Session{conn: conn, cfg: cfg}
	if err := s.prepare(ctx, roles); err != nil {
		s.Close()
		return nil, fmt.Errorf("open the election session: %w", err)
	}
	return s, nil
}

func connect(ctx context.Context, cfg SessionConfig) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(cfg.URL)
	if err != nil {
		return nil, err
	}
	config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	config.ConnectTimeout = max(cfg.Lease, 2*time.Second)
	params := config.RuntimeParams
	params["application_name"] = ApplicationName(cfg.NodeID, cfg.Incarnation)
	params["idle_session_timeout"] = cfg.patience()
	params["idle_in_transaction_session_timeout"] = milliseconds(cfg.Lease)
	params["statement_timeout"] = "0"
	params["lock_timeout"] = "0"
	// Renewals only move a visible time stamp; the mint waits for its WAL.
	params["synchronous_commit"] = "off"
	params["search_path"] = cfg.Schema
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil && strings.Contains(err.Error(), unsupportedParameter) {
		return nil, fmt.Errorf("%w: %s", ErrUnfit, throughPooler)
	}
	return conn, err
}

const (
	// unsupportedParameter is PgBouncer's answer to settings that the server
	// itself would take.
	unsupportedParameter = "unsupported startup parameter"

	throughPooler = "a pooler stands between this node and PostgreSQL; " +
		"set database.leader_url to an address that leads straight to the server"
)

// ApplicationName is how every connection of a node names itself, so that the
// sessions of a fenced process can be found. PostgreSQL keeps 63 bytes.
func ApplicationName(nodeID, incarnation string) string {
	name := "forge:" + incarnation + ":" + nodeID
	return name[:min(len(name), 63)]
}

func (s *Session) prepare(ctx context.Context, roles []string) error {
	var pid uint32
	var version int
	var enforced bool
	if err := s.conn.QueryRow(ctx, openedSQL).Scan(&pid, &version, &enforced); err != nil {
		return err
	}
	switch {
	case pid != s.conn.PgConn().PID() || !enforced:
		return fmt.Errorf("%w: %s", ErrUnfit, throughPooler)
	case version < minServerVersion:
		return fmt.Errorf("%w: PostgreSQL %d is too old; forge needs 14 or newer", ErrUnfit, version/10000)
	}
	if err := watchConnection(ctx, s.conn); err != nil {
		return err
	}
	s.channel = wire.Channel(s.cfg.Schema, wire.LeaderChannel)
	if _, err := s.conn.Exec(ctx, "LISTEN "+pgx.Identifier{s.channel}.Sanitize()); err != nil {
		return fmt.Errorf("listen for changes of leadership: %w", err)
	}
	if _, err := s.conn.Exec(ctx, seedRolesSQL, roles); err != nil {
		return fmt.Errorf("seed the roles: %w", err)
	}
	return s.lockNode(ctx)
}

// watchConnection lets the server notice a dead client while a statement runs.
// Not every platform's server can; there a statement in progress ends later.
func watchConnection(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, connectionCheckSQL)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "22023" { // invalid_parameter_value
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch the connection: %w", err)
	}
	return nil
}

// lockNode shows that this process lives. A session that has just replaced a
// broken one may find the lock still held by it and tries again later.
func (s *Session) lockNode(ctx context.Context) error {
	if s.nodeLock {
		return nil
	}
	err := s.conn.QueryRow(ctx, nodeLockSQL, s.cfg.NodeLockClass, s.cfg.NodeLockObject).Scan(&s.nodeLock)
	if err != nil {
		return fmt.Errorf("take the node's lock: %w", err)
	}
	return nil
}

// TryLocks tries locks that this session does not hold and returns the roles
// that it won. It never waits.
func (s *Session) TryLocks(ctx context.Context, locks []Lock) ([]string, error) {
	if err := s.lockNode(ctx); err != nil {
		return nil, err
	}
	roles := make([]string, len(locks))
	ids := make([]int64, len(locks))
	for i, lock := range locks {
		roles[i], ids[i] = lock.Role, lock.ID
	}
	rows, err := s.conn.Query(ctx, tryLocksSQL, roles, ids, milliseconds(s.cfg.Lease), s.cfg.NodeID)
	if err != nil {
		return nil, fmt.Errorf("try the locks: %w", err)
	}
	var won []string
	var role string
	var got bool
	_, err = pgx.ForEachRow(rows, []any{&role, &got}, func() error {
		if got {
			won = append(won, role)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("try the locks: %w", err)
	}
	return won, nil
}

// Unlock gives back a lock for which no term was minted.
func (s *Session) Unlock(ctx context.Context, lock Lock) error {
	if _, err := s.conn.Exec(ctx, unlockSQL, lock.ID); err != nil {
		return fmt.Errorf("unlock %s: %w", lock.Role, err)
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
	minted := Minted{Fence: Fence{Role: role, NodeID: s.cfg.NodeID, Incarnation: s.cfg.Incarnation}}
	err := pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = on"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = "+milliseconds(s.cfg.LockTimeout)); err != nil {
			return err
		}
		var gap float64
		var replica bool
		row := tx.QueryRow(ctx, mintSQL, role, s.cfg.NodeID, s.cfg.Incarnation, s.cfg.APIURL,
			s.cfg.Lease, s.channel, seen.Incarnation, orNull(seen.At))
		if err := row.Scan(&minted.Fence.Term, &gap, &minted.Failover, &replica, nil); err != nil {
			return err
		}
		if replica {
			return errors.New("the server is a replica")
		}
		minted.Gap = time.Duration(gap * float64(time.Second))
		return nil
	})
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "55P03" { // lock_not_available
		return Minted{}, fmt.Errorf("mint a term of %s: %w", role, ErrBusy)
	}
	if err != nil {
		return Minted{}, fmt.Errorf("mint a term of %s: %w", role, err)
	}
	return minted, nil
}

// Renewed is a term that is still the session's own, and what operators want of
// it.
type Renewed struct {
	Role string
	// HandOver asks the leader to stop and resign.
	HandOver bool
	// Target is the node that shall lead next; empty: any other.
	Target string
}

// Renew moves the lease of every held term and returns those that are still this
// session's.
func (s *Session) Renew(ctx context.Context, held []Held) ([]Renewed, error) {
	roles := make([]string, len(held))
	terms := make([]int64, len(held))
	for i, h := range held {
		roles[i], terms[i] = h.Role, h.Term
	}
	rows, err := s.conn.Query(ctx, renewSQL, roles, terms, s.cfg.Lease, s.cfg.Incarnation)
	if err != nil {
		return nil, fmt.Errorf("renew the lease: %w", err)
	}
	still, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Renewed])
	if err != nil {
		return nil, fmt.Errorf("renew the lease: %w", err)
	}
	return still, nil
}

// Resign vacates the role, records why, frees its lock and tells the standbys.
// The work of the term must have stopped before.
func (s *Session) Resign(ctx context.Context, lock Lock, term int64, reason string) error {
	_, err := s.conn.Exec(ctx, resignSQL, lock.Role, term, s.cfg.Incarnation, reason, s.cfg.NodeID, lock.ID,
		s.channel, s.cfg.reservation())
	if err != nil {
		return fmt.Errorf("resign %s: %w", lock.Role, err)
	}
	return nil
}

// Relax gives the session a standby's patience again, after its last role.
func (s *Session) Relax(ctx context.Context) error {
	if _, err := s.conn.Exec(ctx, patienceSQL, s.cfg.patience()); err != nil {
		return fmt.Errorf("relax the session: %w", err)
	}
	return nil
}

// Wait blocks until the leadership of some role changes, the connection breaks
// or ctx ends; the latter is no error.
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

// Close ends the session at once; the server frees every lock of it.
func (s *Session) Close() { closeNow(s.conn) }

// closeNow takes no context: it must also work when the caller's has ended.
//
//nolint:contextcheck,nolintlint // contextcheck heeds this itself, unseen by nolintlint
func closeNow(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the socket is closed whatever the answer
}

// reservation is how long a role that was vacated for one node is kept for it:
// a little less than it takes the others to try again.
func (cfg SessionConfig) reservation() time.Duration { return cfg.CheckInterval * 9 / 10 }

// patience is how long the server bears a silent standby.
func (cfg SessionConfig) patience() string {
	return milliseconds(max(cfg.Lease, 3*cfg.CheckInterval))
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
