package kubernetes

import (
	"context"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// Session returns a session that tries only the locks of roles whose Lease the node holds. A
// leader whose Lease somebody else has taken hands the role over. The store is that of the
// session's database.
func (c *candidates) Session(session roles.Session, store *leaderstore.Store) roles.Session {
	return &leaseSession{Session: session, leases: c, store: store, heirs: map[string]string{}, claimAt: map[string]time.Time{}}
}

// leaseSession puts the Leases before a session's locks.
type leaseSession struct {
	roles.Session

	leases  *candidates
	store   *leaderstore.Store
	heirs   map[string]string    // by role: the node that is to lead next
	claimAt map[string]time.Time // by role whose Lease is held without the role
}

// TryLocks tries the locks of roles whose Lease is held. A node that takes a role only on
// request does not compete for its Lease: the leader before gives it the Lease.
func (s *leaseSession) TryLocks(ctx context.Context, locks []leaderstore.Lock) ([]string, error) {
	if err := s.leases.identify(ctx, s.store); err != nil {
		return nil, err
	}
	held := slices.DeleteFunc(slices.Clone(locks), func(lock leaderstore.Lock) bool {
		lease := s.leases.byRole[lock.Role]
		return lock.OnlyOnRequest && !lease.isNamed() || !lease.want()
	})
	won, err := s.Session.TryLocks(ctx, held)
	if err == nil {
		s.claim(ctx, held, won)
	}
	return won, err
}

// claim asks the leaders to hand over that have not done so for one lease, because the API server
// does not answer them: they do not know that this node holds their Lease.
func (s *leaseSession) claim(ctx context.Context, held []leaderstore.Lock, won []string) {
	before, now := s.claimAt, time.Now()
	s.claimAt = map[string]time.Time{}
	for _, lock := range held {
		if slices.Contains(won, lock.Role) {
			continue
		}
		at, known := before[lock.Role]
		if known && !now.Before(at) {
			err := s.request(ctx, lock.Role)
			s.leases.opts.logger.InfoContext(ctx, "this node holds the role's Lease, asking the leader to hand over", "role", lock.Role, "error", err)
			known = false
		}
		if !known {
			at = now.Add(s.leases.opts.duration)
		}
		s.claimAt[lock.Role] = at
	}
}

func (s *leaseSession) request(ctx context.Context, role string) error {
	leaders, err := s.store.Leaders(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(leaders, func(l leaderstore.Leader) bool { return l.Role == role && l.NodeID != "" })
	if i < 0 {
		return nil // the next try wins it
	}
	return s.store.Request(ctx, role, leaders[i].Term, s.leases.opts.identity)
}

func (s *leaseSession) Unlock(ctx context.Context, lock leaderstore.Lock) error {
	s.leases.byRole[lock.Role].giveUp("")
	return s.Session.Unlock(ctx, lock)
}

// Renew keeps the Leases of the confirmed terms.
func (s *leaseSession) Renew(ctx context.Context, held []leaderstore.Held) ([]leaderstore.Renewed, error) {
	still, err := s.Session.Renew(ctx, held)
	for i := range still {
		role := still[i].Role
		if s.leases.byRole[role].takenBy() != "" {
			still[i].HandOver = true
		}
		s.heirs[role] = still[i].Target
		s.leases.byRole[role].want()
	}
	return still, err
}

// Resign gives the Lease up together with the role.
func (s *leaseSession) Resign(ctx context.Context, lock leaderstore.Lock, term int64, reason string) error {
	err := s.Session.Resign(ctx, lock, term, reason)
	s.resigned(lock.Role, err)
	return err
}

func (s *leaseSession) ForceResign(ctx context.Context, lock leaderstore.Lock, term int64, reason string) error {
	err := s.Session.ForceResign(ctx, lock, term, reason)
	s.resigned(lock.Role, err)
	return err
}

func (s *leaseSession) resigned(role string, err error) {
	if err == nil {
		s.leases.byRole[role].giveUp(s.heirs[role])
		delete(s.heirs, role)
	}
}

// Wait also returns when the holder of a Lease has changed.
func (s *leaseSession) Wait(ctx context.Context) (notified bool, err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan bool, 1)
	go func() {
		select {
		case <-s.leases.changed:
			changed <- true
		case <-waiting.Done():
			changed <- false
		}
		cancel()
	}()
	notified, err = s.Session.Wait(waiting)
	cancel()
	return <-changed || notified, err
}
