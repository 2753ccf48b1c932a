package roles

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// electionLoop runs Elections on one session. A single goroutine uses the session, so no
// statement waits for another.
type electionLoop struct {
	*Elections
	session          Session
	nextCheck        time.Time
	nextRenew        time.Time
	idleTimeoutReset bool
}

// run alternates between step and wait. It returns nil once ctx has ended and every role is
// resigned, and an error once the session is no longer trusted.
func (l *electionLoop) run(ctx context.Context) error {
	for {
		shutdown := ctx.Err() != nil
		if err := l.step(ctx, shutdown); err != nil {
			return err
		}
		if shutdown && !l.holdsTerm() {
			return nil
		}
		if err := l.wait(ctx, shutdown); err != nil {
			return err
		}
	}
}

// step does what is due: stop, renew, resign, elect.
func (l *electionLoop) step(ctx context.Context, shutdown bool) error {
	leave := ""
	switch {
	case shutdown:
		leave = reasonResigned
	case l.draining.Load():
		leave = reasonSteppedDown
	}
	l.stepElectors(leave)
	if err := l.renew(ctx); err != nil { // first, so that nothing delays it
		return err
	}
	l.stepElectors(leave) // the renewal may have ended a term
	if err := l.resignStopped(ctx); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return l.elect(ctx)
	}
	return nil
}

func (l *electionLoop) stepElectors(leave string) {
	for _, e := range l.electors {
		if trustEnded := e.step(leave); trustEnded {
			l.nextRenew = time.Time{}
		}
	}
}

// elect begins the next term of each lapsed role, whose lock the session still holds, and
// tries the locks of the other roles of which this node is a candidate.
func (l *electionLoop) elect(ctx context.Context) error {
	for _, e := range l.electors {
		if e.state == resuming {
			if err := l.acquireTerm(ctx, e); err != nil {
				return err
			}
		}
	}
	now := time.Now()
	inBurst := now.Before(l.burst.Load().until)
	if now.Before(l.nextCheck) && !inBurst {
		return nil
	}
	l.nextCheck = now.Add(jitter(l.opts.CheckInterval))
	if inBurst {
		l.nextCheck = now.Add(burstInterval)
	}
	locks := l.lockRequests()
	if len(locks) == 0 && l.holdsTerm() {
		return nil
	}
	// Even without locks to try, the statement keeps the session alive. Other nodes see by
	// it that this node is alive.
	if err := l.tryLocks(ctx, locks); err != nil {
		return err
	}
	return l.evict(ctx)
}

// tryLocks acquires a term for each lock that it wins, and counts the others as lost.
func (l *electionLoop) tryLocks(ctx context.Context, locks []leaderstore.Lock) error {
	sending, cancel := l.withLeaseTimeout(ctx)
	defer cancel()
	won, err := l.session.TryLocks(sending, locks)
	if err != nil {
		return err
	}
	for _, e := range l.electors {
		i := slices.IndexFunc(locks, func(lock leaderstore.Lock) bool { return lock.Role == string(e.Role) })
		switch {
		case i < 0:
		case slices.Contains(won, locks[i].Role):
			err = l.acquireTerm(ctx, e)
		case !locks[i].OnlyOnRequest:
			e.countElection("lost")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wait returns when a step is due. It returns at once if ctx has ended since the last step.
func (l *electionLoop) wait(ctx context.Context, shutdown bool) error {
	if !shutdown {
		stop := context.AfterFunc(ctx, l.wake.wake)
		defer stop()
	}
	waiting, cancel := l.wake.context(context.WithoutCancel(ctx), l.nextDeadline(shutdown))
	defer cancel()
	notified, err := l.session.Wait(waiting)
	if notified {
		l.nextCheck, l.nextRenew = time.Time{}, time.Time{} // a renewal also reads hand-over requests
		l.opts.OnChange()
	}
	return err
}

func (l *electionLoop) nextDeadline(shutdown bool) time.Time {
	now := time.Now()
	next := l.nextCheck
	if shutdown || len(l.lockRequests()) == 0 && l.holdsTerm() {
		next = now.Add(l.opts.CheckInterval)
	}
	if l.holdsTerm() && l.nextRenew.Before(next) {
		next = l.nextRenew
	}
	for _, e := range l.electors {
		if deadline := e.deadline(now); !deadline.IsZero() && deadline.Before(next) {
			next = deadline
		}
	}
	return next
}

func (l *electionLoop) acquireTerm(ctx context.Context, e *elector) error {
	sending, cancel := l.withLeaseTimeout(ctx)
	defer cancel()
	sent := time.Now()
	acquired, err := l.session.AcquireTerm(sending, string(e.Role), l.burst.Load().seen)
	if errors.Is(err, leaderstore.ErrBusy) {
		e.countElection("lost")
		if e.state == resuming { // a last transaction of this node still holds the row
			return nil
		}
		l.nextCheck = time.Time{}
		return l.session.Unlock(sending, e.lock())
	}
	if err != nil {
		e.countElection("error")
		return err
	}
	l.idleTimeoutReset = false
	if !l.holdsTerm() {
		l.nextRenew = sent.Add(l.opts.RefreshInterval)
	}
	e.lead(ctx, acquired, sent)
	return nil
}

// renew extends the leases of all held terms in one statement. A term that the database
// does not confirm has ended. If the database confirms at least one term, the session is
// alive and still holds its locks; otherwise it is no longer trusted.
func (l *electionLoop) renew(ctx context.Context) error {
	sent := time.Now()
	held := l.heldTerms(sent)
	if len(held) == 0 || sent.Before(l.nextRenew) {
		return nil
	}
	sending, cancel := l.withLeaseTimeout(ctx)
	defer cancel()
	still, err := l.session.Renew(sending, held)
	l.countRenewals(held, still, err)
	if err != nil {
		return err
	}
	if len(still) == 0 {
		return errReplaced
	}
	l.nextRenew = sent.Add(l.opts.RefreshInterval)
	for _, e := range l.electors {
		i := slices.IndexFunc(still, func(r leaderstore.Renewed) bool { return r.Role == string(e.Role) })
		switch {
		case !e.holdsTerm():
		case i < 0:
			e.replaced()
		default:
			e.renewed(still[i], sent)
		}
	}
	return nil
}

// resignStopped hands over the roles whose work has returned or has exceeded its stop
// timeout. The server may still be committing a last transaction of work that has returned.
func (l *electionLoop) resignStopped(ctx context.Context) error {
	for _, e := range l.electors {
		if e.state != resigning {
			continue
		}
		err := l.resign(ctx, e)
		if errors.Is(err, leaderstore.ErrBusy) {
			continue
		}
		if err != nil {
			return err
		}
		e.resigned(ctx)
	}
	if !l.holdsTerm() && !l.idleTimeoutReset && ctx.Err() == nil {
		l.idleTimeoutReset = true
		return l.resetIdleTimeout(ctx)
	}
	return nil
}

func (l *electionLoop) resetIdleTimeout(ctx context.Context) error {
	sending, cancel := l.withLeaseTimeout(ctx)
	defer cancel()
	return l.session.ResetIdleTimeout(sending)
}

func (l *electionLoop) resign(ctx context.Context, e *elector) error {
	sending, cancel := l.withLeaseTimeout(ctx)
	defer cancel()
	if time.Now().Before(e.resignBy) {
		return l.session.Resign(sending, e.lock(), e.term.fence.Term, e.reason)
	}
	return l.session.ForceResign(sending, e.lock(), e.term.fence.Term, e.reason)
}

// withLeaseTimeout limits a statement to one lease: after that the server may have ended
// the session. The trust window ends earlier, by a timer of its own.
func (l *electionLoop) withLeaseTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), l.opts.LeaseDuration)
}

// lockRequests returns the lock requests of all candidates.
func (l *electionLoop) lockRequests() []leaderstore.Lock {
	var locks []leaderstore.Lock
	if l.draining.Load() {
		return nil
	}
	now := time.Now()
	for _, e := range l.electors {
		if e.state == standby {
			locks = append(locks, e.lockRequest(now))
		}
	}
	return locks
}

func (l *electionLoop) heldTerms(now time.Time) []leaderstore.Held {
	var held []leaderstore.Held
	for _, e := range l.electors {
		if e.holdsTerm() {
			held = append(held, leaderstore.Held{Role: string(e.Role), Term: e.term.fence.Term, Note: e.term.renewals.eventData(now)})
		}
	}
	return held
}

func (l *electionLoop) holdsTerm() bool {
	return slices.ContainsFunc(l.electors, (*elector).holdsTerm)
}

// jitter returns 0.9 to 1.1 times d, so that the standbys do not check at the same time.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
