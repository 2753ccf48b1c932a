package roles

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// ErrNotLeader says that this node does not lead the role now.
var ErrNotLeader = errors.New("this node does not lead the role")

// lead is one term of this node's own. Its mutable fields are guarded by Campaign.mu.
type lead struct {
	fence  leaderstore.Fence
	ended  <-chan struct{}         // closed when the work is told to stop
	end    context.CancelCauseFunc // tells it
	joined sync.WaitGroup          // of the work that Join started

	trustUntil time.Time
	settled    bool  // nothing of a predecessor's can be under way
	over       bool  // the Duty has returned,
	err        error // with this
	stepDown   bool  // asked for by StepDown
}

// leads says whether the node may rely on the term.
func (l *lead) leads(now time.Time) bool {
	return l.settled && !l.stopped() && now.Before(l.trustUntil)
}

// stopped says whether the work was told to stop.
func (l *lead) stopped() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// Leads returns the fence of a role that this node leads now, by what it knows
// itself: within the trust window, after the wait for what a predecessor may have left
// running, and until the work is told to stop. False is certain, true is until the
// fence says otherwise.
func (c *Campaign) Leads(role Role) (leaderstore.Fence, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.leads[role]
	if !ok || !l.leads(time.Now()) {
		return leaderstore.Fence{}, false
	}
	return l.fence, true
}

// Join runs work as a part of the term that this node leads now. The work's context
// ends with ctx and with the lead, with the cause leaderstore.ErrDeposed. As for a
// Duty, the role is handed over in order only when the work has returned, or should
// have. Join returns the work's error, or ErrNotLeader without having called it.
func (c *Campaign) Join(ctx context.Context, role Role, work Duty) error {
	l, ok := c.join(role)
	if !ok {
		return ErrNotLeader
	}
	defer l.joined.Done()
	working, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		select {
		case <-l.ended:
			cancel(leaderstore.ErrDeposed)
		case <-working.Done():
		}
	})
	return work(working, l.fence)
}

func (c *Campaign) join(role Role) (*lead, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.leads[role]
	if !ok || !l.leads(time.Now()) {
		return nil, false
	}
	l.joined.Add(1)
	return l, true
}

// StepDown makes this node stop the work of a role that it leads and hand the role
// over. It returns when the lead is over here, which the work may not know yet, with
// ErrNotLeader, or with the error of ctx; the request stands then.
func (c *Campaign) StepDown(ctx context.Context, role Role) error {
	c.mu.Lock()
	l, ok := c.leads[role]
	if ok {
		l.stepDown = true
	}
	c.mu.Unlock()
	if !ok {
		return ErrNotLeader
	}
	c.wake.poke()
	select {
	case <-l.ended:
	case <-ctx.Done():
		if !l.stopped() { // else the caller was a part of the work
			return ctx.Err()
		}
	}
	return nil
}

// asked says whether StepDown was called in the last term.
func (c *Campaign) asked(l *lead) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return l != nil && l.stepDown
}

// trust moves the end of the trust window.
func (c *Campaign) trust(l *lead, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.trustUntil = until
}

// takenOver notes that no predecessor's work can be under way.
func (c *Campaign) takenOver(l *lead) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.settled = true
}

// returned notes that the Duty has returned: nothing can join the term any more, and
// what has joined it is told to stop.
func (c *Campaign) returned(l *lead, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.over, l.err = true, err
	l.end(errStopping)
	c.wake.poke()
}

// dutyOver says whether the Duty of a term has returned, and its error.
func (c *Campaign) dutyOver(l *lead) (over bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.over, l.err
}
