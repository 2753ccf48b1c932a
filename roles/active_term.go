package roles

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// ErrNotLeader means that this node does not lead the role now.
var ErrNotLeader = errors.New("this node does not lead the role")

// activeTerm is a term of this node. Elections.mu guards its mutable fields.
type activeTerm struct {
	fence  leaderstore.Fence
	ended  <-chan struct{}         // closed when the context of the work ends
	cancel context.CancelCauseFunc // ends the context of the work
	joined sync.WaitGroup          // work that Join started

	trustUntil        time.Time
	takeoverDone      bool // no work of a predecessor can be running
	returned          bool // the LeaderFunc has returned err
	err               error
	stepDownRequested bool // by StepDown
}

// leads reports whether the node may rely on the term.
func (t *activeTerm) leads(now time.Time) bool {
	return t.takeoverDone && !t.stopped() && now.Before(t.trustUntil)
}

// stopped reports whether the context of the work has ended.
func (t *activeTerm) stopped() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// Leads returns the fence of a role if this node leads it now, by local knowledge: within
// the trust window, after AwaitPredecessor, and until the work must stop. False is
// certain. True is only certain once the fence confirms it.
func (es *Elections) Leads(role Role) (leaderstore.Fence, bool) {
	es.mu.Lock()
	defer es.mu.Unlock()
	t, ok := es.activeTerms[role]
	if !ok || !t.leads(time.Now()) {
		return leaderstore.Fence{}, false
	}
	return t.fence, true
}

// Join runs work as a part of the term that this node leads now. The context of the work
// ends with ctx and with the term; the cause is then leaderstore.ErrDeposed. The role is
// handed over once the work has returned or has exceeded the stop timeout, as for a
// LeaderFunc. Join returns the error of the work, or ErrNotLeader if it did not call it.
func (es *Elections) Join(ctx context.Context, role Role, work LeaderFunc) error {
	t, ok := es.join(role)
	if !ok {
		return ErrNotLeader
	}
	defer t.joined.Done()
	working, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() {
		select {
		case <-t.ended:
			cancel(leaderstore.ErrDeposed)
		case <-working.Done():
		}
	})
	return work(working, t.fence)
}

func (es *Elections) join(role Role) (*activeTerm, bool) {
	es.mu.Lock()
	defer es.mu.Unlock()
	t, ok := es.activeTerms[role]
	if !ok || !t.leads(time.Now()) {
		return nil, false
	}
	t.joined.Add(1)
	return t, true
}

// StepDown makes this node stop the work of a role that it leads and hand the role over. It
// returns nil once the term has ended here, even if the work still runs. It returns
// ErrNotLeader if the node does not lead, or the error of ctx; the request remains in
// effect then.
func (es *Elections) StepDown(ctx context.Context, role Role) error {
	es.mu.Lock()
	t, ok := es.activeTerms[role]
	if ok {
		t.stepDownRequested = true
	}
	es.mu.Unlock()
	if !ok {
		return ErrNotLeader
	}
	es.wake.wake()
	select {
	case <-t.ended:
	case <-ctx.Done():
		if !t.stopped() { // otherwise ctx belongs to the work of the term
			return ctx.Err()
		}
	}
	return nil
}

// stepDownRequested reports whether StepDown was called in the last term.
func (es *Elections) stepDownRequested(t *activeTerm) bool {
	es.mu.Lock()
	defer es.mu.Unlock()
	return t != nil && t.stepDownRequested
}

// setTrustUntil sets the end of the trust window.
func (es *Elections) setTrustUntil(t *activeTerm, until time.Time) {
	es.mu.Lock()
	defer es.mu.Unlock()
	t.trustUntil = until
}

// markTakeoverDone records that no work of a predecessor can be running.
func (es *Elections) markTakeoverDone(t *activeTerm) {
	es.mu.Lock()
	defer es.mu.Unlock()
	t.takeoverDone = true
}

// workReturned records that the LeaderFunc has returned. No work can join the term from
// then on, and the context of joined work ends.
func (es *Elections) workReturned(t *activeTerm, err error) {
	es.mu.Lock()
	defer es.mu.Unlock()
	t.returned, t.err = true, err
	t.cancel(errStopping)
	es.wake.wake()
}

// leaderFuncReturned reports whether the LeaderFunc of a term has returned, and its error.
func (es *Elections) leaderFuncReturned(t *activeTerm) (over bool, err error) {
	es.mu.Lock()
	defer es.mu.Unlock()
	return t.returned, t.err
}
