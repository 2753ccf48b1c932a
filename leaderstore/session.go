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

	"github.com/forge-scheduler/forge/internal/wire"
)

// SessionConfig says how the election's dedicated session is opened.
type SessionConfig struct {
	// URL must lead straight to the primary; only a LeaseSession bears a
	// transaction pooler in between.
	URL string
	// Schema that holds forge's tables.
	Schema string

	NodeID      string
	Incarnation string
	APIURL      string
	// Metadata, by role, is published in the leader's row with each new term.
	Metadata map[string]json.RawMessage

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
	// BySchema says that the session moves ID by the number that the database has
	// for this schema, so that clusters in one database do not share their locks.
	BySchema bool
	// IfAsked has it tried only where an operator wants this node to lead next, or
	// another has led since the term LeftAt; 0: that does not count.
	IfAsked bool
	LeftAt  int64
}

// Held is a term that this session leads.
type Held struct {
	Role string
	Term int64
	// Note, if not empty, is the data of an event lease_renewed, as JSON, which is
	// recorded with the renewal.
	Note string
}

// Session is the one connection on which a node elects and leads all its roles.
// It is not safe for concurrent use. After any error but ErrBusy it must be
// closed: the server then frees its locks.
type Session struct {
	conn     *pgx.Conn
	cfg      SessionConfig
	nodeLock bool
	suspects suspects
	offset   int64            // of the lock ids
	ids      map[string]int64 // of the locks that were tried, by role
}

// ErrUnfit says that the database cannot hold an election session as it is
// reached; trying again does not help.
var ErrUnfit = errors.New("unfit for elections")

// ErrBusy says that the role cannot be taken or resigned now: a last transaction of
// the term still holds its row, which its own time-out ends, or another was first.
var ErrBusy = errors.New("the role's row is locked by the last transaction of its term")

const (
	connectionCheckSQL = `SELECT set_config('client_connection_check_interval', $1, false)`

	seedRolesSQL = `INSERT INTO forge_leaders (role) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING`

	nodeLockSQL = `SELECT pg_try_advisory_lock($1::int, $2::int)`

	// The statement that wins a lock also shortens the session's patience to
	// the lease, so there is no instant at which a leader's session lives longer.
	// A role that is being transferred is its target's to try first. A lock says
	// nothing about a term that it did not elect, for instance one that was won by
	// lease alone or under another lock id: that role is nobody's while the lease
	// lasts.
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

	unlockSQL = `SELECT pg_advisory_unlock($1)`

	patienceSQL = `SELECT set_config('idle_session_timeout', $1, false)`

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

	// A fenced transaction has the row locked, and may yet commit what nobody waits
	// for any more. With $8 the role is not vacated meanwhile, and nothing is waited
	// for: a session speaks for several roles.
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
    SET reserved_until = clock_timestamp() + $7::interval
    FROM vacated v
    WHERE r.role = v.role AND r.term = v.term
), ended AS (
    SELECT EXISTS (SELECT FROM vacated) OR
           NOT EXISTS (SELECT FROM forge_leaders WHERE role = $1 AND term = $2 AND incarnation = $3) AS over
)`

	// The unlock is in the same statement: whoever wins the lock before this
	// commits waits for the row.
	resignSQL = vacateSQL + `
SELECT over, CASE WHEN over THEN pg_advisory_unlock($9) END, CASE WHEN over THEN pg_notify($6, $1) END FROM ended`
)

// OpenSession connects, checks that the connection is what an election needs,
// and makes sure that the roles have their rows.
func OpenSession(ctx context.Context, cfg SessionConfig, roles []string) (*Session, error) {
	conn, err := connect(ctx, cfg, closeLast)
	if err != nil {
		return nil, fmt.Errorf("open the election session: %w", err)
	}
	s := &Session{conn: conn, cfg: cfg, suspects: suspects{}, ids: map[string]int64{}}
	if err := s.prepare(ctx, roles); err != nil {
		s.Close()
		return nil, fmt.Errorf("open the election session: %w", err)
	}
	return s, nil
}

// ApplicationName is how every connection of a node names itself, so that the
// sessions of a fenced process can be found. PostgreSQL keeps 63 bytes.
func ApplicationName(nodeID, incarnation string) string {
	name := "forge:" + incarnation + ":" + nodeID
	return name[:min(len(name), 63)]
}

func (s *Session) prepare(ctx context.Context, roles []string) error {
	if err := watchConnection(ctx, s.conn, connectionCheck); err != nil {
		return err
	}
	if _, err := s.conn.Exec(ctx, "LISTEN "+pgx.Identifier{s.cfg.channel()}.Sanitize()); err != nil {
		return fmt.Errorf("listen for changes of leadership: %w", err)
	}
	if _, err := s.conn.Exec(ctx, seedRolesSQL, roles); err != nil {
		return fmt.Errorf("seed the roles: %w", err)
	}
	var err error
	if s.offset, err = LockOffset(ctx, s.conn); err != nil {
		return err
	}
	if _, err := s.conn.Exec(ctx, clusterLockSQL, clusterLockClass); err != nil {
		return fmt.Errorf("show the session's cluster: %w", err)
	}
	if err := s.rehearse(ctx); err != nil {
		return err
	}
	return s.lockNode(ctx)
}

// connectionCheck is how often the server looks whether an elector still lives while
// its statement runs.
const connectionCheck = 200 * time.Millisecond

// watchConnection lets the server notice a dead client while a statement runs.
// Not every platform's server can; there a statement in progress ends later.
func watchConnection(ctx context.Context, conn *pgx.Conn, every time.Duration) error {
	_, err := conn.Exec(ctx, connectionCheckSQL, strconv.FormatInt(every.Milliseconds(), 10))
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
	ifAsked := make([]bool, len(locks))
	leftAt := make([]int64, len(locks))
	for i, lock := range locks {
		roles[i], ids[i], ifAsked[i], leftAt[i] = lock.Role, lock.At(s.offset).ID, lock.IfAsked, lock.LeftAt
		s.ids[lock.Role] = ids[i]
	}
	if err := s.checkDistinct(); err != nil {
		return nil, err
	}
	rows, err := s.conn.Query(ctx, tryLocksSQL, roles, ids, milliseconds(s.cfg.Lease), s.cfg.NodeID, ifAsked, leftAt)
	if err != nil {
		return nil, fmt.Errorf("try the locks: %w", err)
	}
	var won []string
	var found suspect
	var renewed *time.Time
	var got, expired bool
	now := time.Now()
	columns := []any{&found.lock.Role, &found.lock.ID, &got, &found.term, &renewed, &expired}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		if got {
			won = append(won, found.lock.Role)
			delete(s.suspects, found.lock.Role)
			return nil
		}
		found.renewed = orZero(renewed)
		s.suspects.note(found, expired, now)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("try the locks: %w", err)
	}
	return won, nil
}

// checkDistinct refuses two roles on one lock, which may show only here: the offset of
// the schema is not known to the file. Each would keep the other from being led.
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

// Unlock gives back a lock for which no term was minted.
func (s *Session) Unlock(ctx context.Context, lock Lock) error {
	if _, err := s.conn.Exec(ctx, unlockSQL, lock.At(s.offset).ID); err != nil {
		return fmt.Errorf("unlock %s: %w", lock.Role, err)
	}
	return nil
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
	return renew(ctx, s.conn, renewSQL, s.cfg, held)
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

// Resign vacates the role, records why, frees its lock and tells the standbys.
// The work of the term must have stopped before; ErrBusy means that the server has
// not ended all of it yet, for instance a commit that nobody waits for any more.
func (s *Session) Resign(ctx context.Context, lock Lock, term int64, reason string) error {
	return vacate(ctx, s.conn, resignSQL, s.cfg, lock.Role, term, reason, true, lock.At(s.offset).ID)
}

// Vacate is Resign whatever the term has under way. Until that has ended nobody else
// can lead.
func (s *Session) Vacate(ctx context.Context, lock Lock, term int64, reason string) error {
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

// channel is where changes of leadership are announced.
func (cfg SessionConfig) channel() string { return wire.Channel(cfg.Schema, wire.LeaderChannel) }

// reservation is how long a role that was vacated for one node is kept for it:
// a little less than it takes the others to try again.
func (cfg SessionConfig) reservation() time.Duration { return cfg.CheckInterval * 9 / 10 }

// patience is how long the server bears a silent standby.
func (cfg SessionConfig) patience() string {
	return milliseconds(max(cfg.Lease, 3*cfg.CheckInterval))
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
