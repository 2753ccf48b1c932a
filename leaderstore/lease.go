package leaderstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/postgres"
)

const (
	// A role without a row is free: acquireTermSQL inserts the row.
	observeSQL = `
SELECT wanted.role, coalesce(l.term, 0), coalesce(l.node_id, ''), coalesce(l.incarnation, '') = $2,
       extract(epoch FROM l.lease_until - clock_timestamp())::float8, clock_timestamp(),
       NOT coalesce(r.target = $3, NOT if_asked OR left_at > 0 AND l.term > left_at, false)
FROM unnest($1::text[], $4::boolean[], $5::bigint[]) AS wanted (role, if_asked, left_at)
LEFT JOIN forge_leaders l USING (role)
LEFT JOIN forge_leader_requests r ON r.role = wanted.role AND r.reserved_until > clock_timestamp()`

	// An expired lease is over even if no other node has acquired the role.
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

// LeaseSession runs elections by lease alone, for a database behind a transaction pooler. A
// role is free if it is vacant or if its lease has expired by the database's clock.
// LeaseSession uses no session state, so each statement may run on another server session.
// A failover after a crash takes a whole lease, because nothing else shows that a process
// has ended. It is not safe for concurrent use.
type LeaseSession struct {
	conn       *pgx.Conn
	cfg        SessionConfig
	clockJumps clockJumpDetector

	observed   map[string]observation
	changed    bool      // a leader changed since Wait last returned
	nextExpiry time.Time // the earliest end of another node's lease; zero: none
}

// observation is the state of a role as read once.
type observation struct {
	role      string
	term      int64
	nodeID    string
	own       bool
	remaining time.Duration // of the lease
	reserved  bool          // for another node, or the lock request has OnlyOnRequest
}

// OpenLease connects, checks that the server accepts writes in the right schema, and
// inserts missing rows of the roles.
func OpenLease(ctx context.Context, cfg SessionConfig, roles []string) (*LeaseSession, error) {
	conn, err := connectLease(ctx, cfg, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, seedRolesSQL, roles); err != nil {
			return fmt.Errorf("seed the roles: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open the election session: %w", err)
	}
	return &LeaseSession{conn: conn, cfg: cfg, clockJumps: clockJumpDetector{lease: cfg.Lease}}, nil
}

// TryLocks returns the roles that are free now. It acquires nothing: the first node to
// acquire a term has the role.
func (s *LeaseSession) TryLocks(ctx context.Context, locks []Lock) ([]string, error) {
	observations, err := s.observe(ctx, locks)
	if err != nil {
		return nil, fmt.Errorf("read which roles are free: %w", err)
	}
	var free []string
	now := time.Now()
	s.nextExpiry = time.Time{}
	for _, found := range observations {
		s.recordChange(found)
		if found.free(s.clockJumps.distrusted(now)) {
			free = append(free, found.role)
		}
		if ends := now.Add(found.remaining); !found.own && found.remaining > 0 && (s.nextExpiry.IsZero() || ends.Before(s.nextExpiry)) {
			s.nextExpiry = ends
		}
	}
	return free, nil
}

func (s *LeaseSession) observe(ctx context.Context, locks []Lock) ([]observation, error) {
	roles, onRequest, handedOver := make([]string, len(locks)), make([]bool, len(locks)), make([]int64, len(locks))
	for i, lock := range locks {
		roles[i], onRequest[i], handedOver[i] = lock.Role, lock.OnlyOnRequest, lock.HandedOverTerm
	}
	sent := time.Now()
	rows, err := s.conn.Query(ctx, observeSQL, roles, s.cfg.Incarnation, s.cfg.NodeID, onRequest, handedOver)
	if err != nil {
		return nil, err
	}
	var database time.Time
	observations, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (observation, error) {
		var found observation
		var remaining *float64
		err := row.Scan(&found.role, &found.term, &found.nodeID, &found.own, &remaining, &database, &found.reserved)
		if remaining != nil {
			found.remaining = time.Duration(*remaining * float64(time.Second))
		}
		return found, err
	})
	if err == nil && len(observations) > 0 {
		s.clockJumps.observe(sent, time.Now(), database)
	}
	return observations, err
}

// free reports whether the role may be acquired. A process that lost its connection may
// acquire its own role again before the lease expires, because its work has stopped.
func (found observation) free(distrust bool) bool {
	switch {
	case found.reserved:
		return false
	case found.nodeID == "" || found.own:
		return true
	default:
		return found.remaining <= 0 && !distrust
	}
}

// recordChange detects leadership changes, for which there is no notification.
func (s *LeaseSession) recordChange(found observation) {
	before, known := s.observed[found.role]
	if known && (before.term != found.term || before.nodeID != found.nodeID) {
		s.changed = true
	}
	if s.observed == nil {
		s.observed = map[string]observation{}
	}
	s.observed[found.role] = found
}

// Unlock does nothing: there are no locks.
func (*LeaseSession) Unlock(context.Context, Lock) error { return nil }

// ResetIdleTimeout does nothing: there is no lasting session.
func (*LeaseSession) ResetIdleTimeout(context.Context) error { return nil }

// AcquireTerm makes this process the leader of a free role. It returns once the new term is
// committed. ErrBusy means that another node was first.
func (s *LeaseSession) AcquireTerm(ctx context.Context, role string, seen SessionEnd) (AcquiredTerm, error) {
	return acquireTerm(ctx, s.conn, s.cfg, role, seen, nil)
}

// Renew works like Session.Renew. It does not confirm a term whose lease has expired.
func (s *LeaseSession) Renew(ctx context.Context, held []Held) ([]Renewed, error) {
	return renew(ctx, s.conn, renewLeaseSQL, s.cfg, held)
}

// Resign works like Session.Resign.
func (s *LeaseSession) Resign(ctx context.Context, lock Lock, term int64, reason string) error {
	return vacate(ctx, s.conn, resignLeaseSQL, s.cfg, lock.Role, term, reason, true)
}

// ForceResign works like Session.ForceResign.
func (s *LeaseSession) ForceResign(ctx context.Context, lock Lock, term int64, reason string) error {
	return vacate(ctx, s.conn, resignLeaseSQL, s.cfg, lock.Role, term, reason, false)
}

// Wait blocks until ctx ends, which is not an error, or until there is a reason to check
// the roles: the lease of another node has expired, or the last check found another leader.
// The next statement reports a broken connection.
func (s *LeaseSession) Wait(ctx context.Context) (notified bool, err error) {
	if s.changed {
		s.changed = false
		return true, nil
	}
	var expired <-chan time.Time
	if !s.nextExpiry.IsZero() {
		timer := time.NewTimer(time.Until(s.nextExpiry) + time.Millisecond)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-ctx.Done():
		return false, nil
	case <-expired:
		s.nextExpiry = time.Time{}
		return true, nil
	}
}

// Close ends the connection. The roles that the session led stay taken until their leases
// expire.
func (s *LeaseSession) Close() { postgres.CloseNow(s.conn) }

// clockJumpDetector detects that the database's clock was set forward. A lease that expired
// by such a jump may belong to a live leader. For one lease after a jump only vacant roles
// are free, so that a live leader can renew first.
type clockJumpDetector struct {
	lease  time.Duration
	offset time.Duration // from the local monotonic clock to the database's clock
	base   time.Time     // start of the offset; zero: nothing observed
	until  time.Time
}

// jumpFraction is the share of a lease by which the clocks may drift, or the round-trip
// time may vary, between two observations.
const jumpFraction = 0.1

// observe adds a reading of the database's clock that was taken between sent and received.
func (d *clockJumpDetector) observe(sent, received, now time.Time) {
	if d.base.IsZero() {
		d.base = sent
		d.offset = d.offsetAt(sent, received, now)
		return
	}
	offset := d.offsetAt(sent, received, now)
	tolerance := time.Duration(jumpFraction*float64(d.lease)) + received.Sub(sent)
	if offset-d.offset > tolerance {
		d.until = received.Add(d.lease)
	}
	d.offset = offset
}

// offsetAt returns the difference between the database's clock and the local clock in the
// middle of a round trip, both counted from base.
func (d *clockJumpDetector) offsetAt(sent, received, now time.Time) time.Duration {
	local := sent.Sub(d.base) + received.Sub(sent)/2
	return now.Sub(d.base.Round(0)) - local
}

func (d *clockJumpDetector) distrusted(now time.Time) bool { return now.Before(d.until) }
