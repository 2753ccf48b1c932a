package leaderstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// A role whose row is missing is free: the mint makes the row again.
	sightSQL = `
SELECT wanted.role, coalesce(l.term, 0), coalesce(l.node_id, ''), coalesce(l.incarnation, '') = $2,
       extract(epoch FROM l.lease_until - clock_timestamp())::float8, clock_timestamp(),
       NOT coalesce(r.target = $3, NOT if_asked OR left_at > 0 AND l.term > left_at, false)
FROM unnest($1::text[], $4::boolean[], $5::bigint[]) AS wanted (role, if_asked, left_at)
LEFT JOIN forge_leaders l USING (role)
LEFT JOIN forge_leader_requests r ON r.role = wanted.role AND r.reserved_until > clock_timestamp()`

	// A lease that has run out is over, whether anybody has taken the role or not.
	renewLeaseSQL = `
WITH renewed AS (
UPDATE forge_leaders l
SET renewed_at = clock_timestamp(), lease_until = clock_timestamp() + $3::interval
FROM unnest($1::text[], $2::bigint[]) AS held (role, term)
LEFT JOIN forge_leader_requests r ON r.role = held.role AND r.term = held.term
WHERE l.role = held.role AND l.term = held.term
  AND l.incarnation = $4 AND l.lease_until > clock_timestamp()
RETURNING l.role, r.role IS NOT NULL AS asked, coalesce(r.target, '') AS target, l.node_id, l.term
)` + noteRenewalsSQL

	resignLeaseSQL = vacateSQL + `
SELECT over, NULL, CASE WHEN over THEN pg_notify($6, $1) END FROM ended`
)

// LeaseSession elects by the roles' rows alone, for a database that is only
// reached through a pooler in transaction mode: a role is free when it is vacant
// or when its lease has run out by the database's clock. It needs nothing of the
// server's session, so that every statement may run on another one. A crash costs
// a lease, for nothing tells that a process is gone. It is not safe for
// concurrent use.
type LeaseSession struct {
	conn  *pgx.Conn
	cfg   SessionConfig
	clock clockWatch

	seen    map[string]sight
	changed bool      // somebody began or ended to lead since Wait last returned
	expiry  time.Time // when the first of the others' leases runs out; zero: none
}

// sight is what a look found of a role.
type sight struct {
	role      string
	term      int64
	nodeID    string
	own       bool
	remaining time.Duration // of the lease
	kept      bool          // for another node, or from one that waits to be asked
}

// OpenLease connects, checks that the server takes writes in the right schema,
// and makes sure that the roles have their rows.
func OpenLease(ctx context.Context, cfg SessionConfig, roles []string) (*LeaseSession, error) {
	conn, err := connectLease(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the election session: %w", err)
	}
	s := &LeaseSession{conn: conn, cfg: cfg, clock: clockWatch{lease: cfg.Lease}}
	if _, err := conn.Exec(ctx, seedRolesSQL, roles); err != nil {
		s.Close()
		return nil, fmt.Errorf("open the election session: seed the roles: %w", err)
	}
	return s, nil
}

// TryLocks returns the roles that may be minted now. It takes nothing: whoever
// mints first has the role.
func (s *LeaseSession) TryLocks(ctx context.Context, locks []Lock) ([]string, error) {
	sights, err := s.look(ctx, locks)
	if err != nil {
		return nil, fmt.Errorf("look for free roles: %w", err)
	}
	var free []string
	now := time.Now()
	s.expiry = time.Time{}
	for _, found := range sights {
		s.notice(found)
		if found.free(s.clock.distrusts(now)) {
			free = append(free, found.role)
		}
		if ends := now.Add(found.remaining); !found.own && found.remaining > 0 && (s.expiry.IsZero() || ends.Before(s.expiry)) {
			s.expiry = ends
		}
	}
	return free, nil
}

func (s *LeaseSession) look(ctx context.Context, locks []Lock) ([]sight, error) {
	roles, ifAsked, leftAt := make([]string, len(locks)), make([]bool, len(locks)), make([]int64, len(locks))
	for i, lock := range locks {
		roles[i], ifAsked[i], leftAt[i] = lock.Role, lock.IfAsked, lock.LeftAt
	}
	sent := time.Now()
	rows, err := s.conn.Query(ctx, sightSQL, roles, s.cfg.Incarnation, s.cfg.NodeID, ifAsked, leftAt)
	if err != nil {
		return nil, err
	}
	var database time.Time
	sights, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (sight, error) {
		var found sight
		var remaining *float64
		err := row.Scan(&found.role, &found.term, &found.nodeID, &found.own, &remaining, &database, &found.kept)
		if remaining != nil {
			found.remaining = time.Duration(*remaining * float64(time.Second))
		}
		return found, err
	})
	if err == nil && len(sights) > 0 {
		s.clock.observe(sent, time.Now(), database)
	}
	return sights, err
}

// free says whether a role may be taken. A process that lost its connection may
// have its own role back before the lease runs out: it knows that its work has
// stopped.
func (found sight) free(distrust bool) bool {
	switch {
	case found.kept:
		return false
	case found.nodeID == "" || found.own:
		return true
	default:
		return found.remaining <= 0 && !distrust
	}
}

// notice finds changes of leadership, which nothing else tells.
func (s *LeaseSession) notice(found sight) {
	before, known := s.seen[found.role]
	if known && (before.term != found.term || before.nodeID != found.nodeID) {
		s.changed = true
	}
	if s.seen == nil {
		s.seen = map[string]sight{}
	}
	s.seen[found.role] = found
}

// Unlock has nothing to give back.
func (*LeaseSession) Unlock(context.Context, Lock) error { return nil }

// Relax has nothing to relax.
func (*LeaseSession) Relax(context.Context) error { return nil }

// Mint makes this process the leader of a free role: it returns once the new term
// is committed. ErrBusy means that another was first.
func (s *LeaseSession) Mint(ctx context.Context, role string, seen End) (Minted, error) {
	return mint(ctx, s.conn, s.cfg, role, seen, nil)
}

// Renew is Session.Renew.
func (s *LeaseSession) Renew(ctx context.Context, held []Held) ([]Renewed, error) {
	return renew(ctx, s.conn, renewLeaseSQL, s.cfg, held)
}

// Resign vacates the role and records why, as Session.Resign does.
func (s *LeaseSession) Resign(ctx context.Context, lock Lock, term int64, reason string) error {
	return vacate(ctx, s.conn, resignLeaseSQL, s.cfg, lock.Role, term, reason, true)
}

// Vacate is Session.Vacate.
func (s *LeaseSession) Vacate(ctx context.Context, lock Lock, term int64, reason string) error {
	return vacate(ctx, s.conn, resignLeaseSQL, s.cfg, lock.Role, term, reason, false)
}

// Wait blocks until ctx ends, which is no error, or until there is a reason to
// look: a lease of somebody else has run out, or the last look found another
// leader. A broken connection is found by the next statement.
func (s *LeaseSession) Wait(ctx context.Context) (notified bool, err error) {
	if s.changed {
		s.changed = false
		return true, nil
	}
	var expired <-chan time.Time
	if !s.expiry.IsZero() {
		timer := time.NewTimer(time.Until(s.expiry) + time.Millisecond)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-ctx.Done():
		return false, nil
	case <-expired:
		s.expiry = time.Time{}
		return true, nil
	}
}

// Close ends the connection. The roles that it led stay taken for a lease.
func (s *LeaseSession) Close() { closeNow(s.conn) }

// clockWatch notices that the database's clock was set: an expiry that a leap has
// brought about says nothing. For a lease after it only vacant roles are free, so
// that a leader who lives is heard first.
type clockWatch struct {
	lease  time.Duration
	offset time.Duration // of the database's clock from the local monotonic one
	base   time.Time     // what the offset is counted from; zero: nothing observed
	until  time.Time
}

// leap is the part of a lease by which the clocks may drift apart, or a round
// trip vary, between two looks.
const leap = 0.1

// observe takes in that the database's clock read now between sent and received.
func (w *clockWatch) observe(sent, received, now time.Time) {
	if w.base.IsZero() {
		w.base = sent
		w.offset = w.against(sent, received, now)
		return
	}
	offset := w.against(sent, received, now)
	tolerance := time.Duration(leap*float64(w.lease)) + received.Sub(sent)
	if offset-w.offset > tolerance {
		w.until = received.Add(w.lease)
	}
	w.offset = offset
}

// against is how much later the database's clock is than the local one in the
// midst of a round trip, both counted from the base.
func (w *clockWatch) against(sent, received, now time.Time) time.Duration {
	local := sent.Sub(w.base) + received.Sub(sent)/2
	return now.Sub(w.base.Round(0)) - local
}

func (w *clockWatch) distrusts(now time.Time) bool { return now.Before(w.until) }
