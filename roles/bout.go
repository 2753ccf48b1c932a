package roles

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// bout is a Campaign on one session: a single goroutine speaks on it, so that
// nothing is ever sent behind another statement's back.
type bout struct {
	*Campaign
	session   Session
	nextCheck time.Time
	nextRenew time.Time
	relaxed   bool
}

// run alternates between acting and waiting. It returns nil once ctx has ended
// and every role is resigned, and an error when the session can no longer be
// trusted.
func (b *bout) run(ctx context.Context) error {
	b.relaxed = true
	for {
		err := b.act(ctx)
		if err != nil || b.over(ctx) {
			return err
		}
		if err := b.wait(ctx); err != nil {
			return err
		}
	}
}

// over says whether there is nothing left to hand over after the end of ctx.
func (b *bout) over(ctx context.Context) bool { return ctx.Err() != nil && b.idle() }

// act does what is due now: stop, resign, renew, campaign.
func (b *bout) act(ctx context.Context) error {
	for _, e := range b.electors {
		if e.distrusted(time.Now()) { // before anything else is read into it: the whole process may have stood still
			e.lapse()
			b.nextRenew = time.Time{} // shows whether the session stands
		}
		if ctx.Err() != nil {
			e.stop(reasonResigned, errStopping, e.patience())
		}
		if b.abstaining() {
			e.stop(reasonSteppedDown, errStopping, e.patience())
		}
		if b.asked(e.led) {
			e.handOver("")
		}
		e.checkReturned()
		e.checkProgress(time.Now())
		e.reap(time.Now())
	}
	if err := b.renew(ctx); err != nil { // first: nothing else may make it late
		return err
	}
	if err := b.resignStopped(ctx); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return b.stand(ctx)
	}
	return nil
}

// stand campaigns for the roles that this node does not lead.
func (b *bout) stand(ctx context.Context) error {
	if err := b.returnLapsed(ctx); err != nil {
		return err
	}
	return b.check(ctx)
}

// returnLapsed begins the next term of the roles whose last one lapsed on this
// session and whose work has stopped. The session still has their locks.
func (b *bout) returnLapsed(ctx context.Context) error {
	for _, e := range b.electors {
		if !e.mayReturn() {
			continue
		}
		if err := b.mint(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (b *bout) wait(ctx context.Context) error {
	if ctx.Err() != nil && b.unaware() {
		return nil // it ended while a statement was under way
	}
	parent := context.WithoutCancel(ctx)
	if ctx.Err() == nil {
		stop := context.AfterFunc(ctx, b.wake.poke)
		defer stop()
	}
	waiting, cancel := b.wake.context(parent, b.nextDeadline(ctx))
	defer cancel()
	notified, err := b.session.Wait(waiting)
	if notified {
		b.nextCheck, b.nextRenew = time.Time{}, time.Time{} // a renewal reads the wishes
		b.opts.OnChange()
	}
	return err
}

func (b *bout) nextDeadline(ctx context.Context) time.Time {
	next := b.nextCheck
	if ctx.Err() != nil || len(b.vacant()) == 0 && b.leading() {
		next = time.Now().Add(b.opts.CheckInterval)
	}
	if b.leading() && b.nextRenew.Before(next) {
		next = b.nextRenew
	}
	for _, e := range b.electors {
		if look := e.nextLook(); !look.IsZero() && look.Before(next) {
			next = look
		}
	}
	return next
}

// check campaigns for every role that this node does not hold.
func (b *bout) check(ctx context.Context) error {
	now := time.Now()
	hurries := b.hurries(now)
	if now.Before(b.nextCheck) && !hurries {
		return nil
	}
	b.nextCheck = now.Add(jitter(b.opts.CheckInterval))
	if hurries {
		b.nextCheck = now.Add(hurryEvery)
	}
	locks := b.vacant()
	if len(locks) == 0 && b.leading() {
		return nil
	}
	// With nothing to win the statement still keeps the session alive, which
	// shows the cluster that this node is.
	won, err := b.tryLocks(ctx, locks)
	if err != nil {
		return err
	}
	for _, lock := range locks {
		if err := b.settle(ctx, lock, won); err != nil {
			return err
		}
	}
	return b.evict(ctx)
}

func (b *bout) tryLocks(ctx context.Context, locks []leaderstore.Lock) ([]string, error) {
	sending, cancel := b.bounded(ctx)
	defer cancel()
	return b.session.TryLocks(sending, locks)
}

// settle turns a won lock into a term, and counts the attempt.
func (b *bout) settle(ctx context.Context, lock leaderstore.Lock, won []string) error {
	i := slices.IndexFunc(b.electors, func(e *elector) bool { return string(e.Role) == lock.Role })
	switch e := b.electors[i]; {
	case slices.Contains(won, lock.Role):
		return b.mint(ctx, e)
	case !lock.IfAsked:
		e.count("lost")
	}
	return nil
}

func (b *bout) mint(ctx context.Context, e *elector) error {
	sending, cancel := b.bounded(ctx)
	defer cancel()
	sent := time.Now()
	minted, err := b.session.Mint(sending, string(e.Role), b.lastSeen())
	if errors.Is(err, leaderstore.ErrBusy) {
		e.count("lost")
		if e.state == lapsed { // a last transaction of its own is ending
			return nil
		}
		b.nextCheck = time.Time{}
		return b.session.Unlock(sending, e.lock())
	}
	if err != nil {
		e.count("error")
		return err
	}
	if e.done != nil {
		e.forgetWork()
	}
	b.relaxed = false
	if !b.leading() {
		b.nextRenew = sent.Add(b.opts.RefreshInterval)
	}
	e.lead(ctx, minted, sent)
	return nil
}

// renew moves the lease of all led roles in one statement. What the database does not
// confirm is lost at once. If it confirms any of them the session is the leader's own and
// still has their locks; otherwise it is no longer trusted.
func (b *bout) renew(ctx context.Context) error {
	sent := time.Now()
	held := b.held(sent)
	if len(held) == 0 || sent.Before(b.nextRenew) {
		return nil
	}
	sending, cancel := b.bounded(ctx)
	defer cancel()
	still, err := b.session.Renew(sending, held)
	b.countRenewals(held, still, err)
	if err != nil {
		return err
	}
	if len(still) == 0 {
		return errReplaced
	}
	b.nextRenew = sent.Add(b.opts.RefreshInterval)
	for _, e := range b.electors {
		e.renewed(still, sent)
	}
	return nil
}

// resignStopped hands over the roles whose work has ended, or should have by
// now. What has ended here the server may still be about to commit.
func (b *bout) resignStopped(ctx context.Context) error {
	for _, e := range b.electors {
		if !e.workEnded() && !e.overstays(time.Now()) {
			continue
		}
		err := b.resign(ctx, e)
		if errors.Is(err, leaderstore.ErrBusy) {
			continue
		}
		if err != nil {
			return err
		}
		e.resigned(ctx)
	}
	if b.idle() && !b.relaxed {
		b.relaxed = true
		return b.session.Relax(context.WithoutCancel(ctx))
	}
	return nil
}

func (b *bout) resign(ctx context.Context, e *elector) error {
	sending, cancel := b.bounded(ctx)
	defer cancel()
	if e.awaitsServer(time.Now()) {
		return b.session.Resign(sending, e.lock(), e.fence.Term, e.reason)
	}
	return b.session.Vacate(sending, e.lock(), e.fence.Term, e.reason)
}

// bounded gives a statement a lease: later the server may have ended the session.
// The trust in a lead ends before that, by a timer of its own.
func (b *bout) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), b.opts.LeaseDuration)
}

// deposeAll ends every lead without a word to the database. Work that is still
// stopping keeps this node from its own role only.
func (b *bout) deposeAll(cause error) {
	for _, e := range b.electors {
		e.depose(cause)
	}
}

// unaware says whether some work has not been told to end.
func (b *bout) unaware() bool {
	return slices.ContainsFunc(b.electors, func(e *elector) bool { return e.state == leading })
}

// vacant lists the locks to campaign for.
func (b *bout) vacant() []leaderstore.Lock {
	var locks []leaderstore.Lock
	if b.abstaining() {
		return nil
	}
	now := time.Now()
	for _, e := range b.electors {
		if e.stands() {
			locks = append(locks, e.bid(now))
		}
	}
	return locks
}

func (b *bout) held(now time.Time) []leaderstore.Held {
	var held []leaderstore.Held
	for _, e := range b.electors {
		if e.state != standby {
			held = append(held, leaderstore.Held{Role: string(e.Role), Term: e.fence.Term, Note: e.renewals.note(now)})
		}
	}
	return held
}

func (b *bout) leading() bool { return len(b.held(time.Time{})) > 0 }

func (b *bout) idle() bool { return !b.leading() }

// jitter spreads the standbys: 0.9 to 1.1 times d.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
