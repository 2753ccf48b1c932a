package roles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Elections runs one elector per role over one session.
type Elections struct {
	opts     Options
	electors []*elector
	wake     waker
	terms    *activeTerms
	burst    atomic.Pointer[burst]
	draining atomic.Bool

	loggedHolders map[string]bool // lock holders that were logged; used by Run only
}

// After a deputy has reported the end of a leader's session, the node tries the locks every
// burstInterval for burstDuration: the server frees the locks of an ended session one after
// the other.
const (
	burstInterval = time.Millisecond
	burstDuration = 25 * time.Millisecond
)

// burst is a request to try the locks repeatedly.
type burst struct {
	until time.Time
	seen  leaderstore.SessionEnd
}

// reopenDelay is the average delay before a broken session is opened again.
const reopenDelay = 200 * time.Millisecond

// NewElections returns Elections that are not running yet.
func NewElections(opts Options) *Elections {
	opts.BackOff = cmp.Or(opts.BackOff, 3*opts.CheckInterval)
	if opts.OnChange == nil {
		opts.OnChange = func() {}
	}
	if opts.OnTerm == nil {
		opts.OnTerm = func(TermChange) {}
	}
	terms := &activeTerms{onTerm: opts.OnTerm, onChange: opts.OnChange, byRole: map[Role]*term{}}
	es := &Elections{opts: opts, terms: terms, loggedHolders: map[string]bool{}}
	es.burst.Store(&burst{})
	for _, config := range opts.Roles {
		es.electors = append(es.electors, newElector(config, &es.opts, terms, es.wake.wake))
	}
	return es
}

// ElectNow makes the node try the locks at once, and repeatedly for burstDuration, because
// the session of a leader has ended.
func (es *Elections) ElectNow(seen leaderstore.SessionEnd) {
	es.burst.Store(&burst{until: time.Now().Add(burstDuration), seen: seen})
	es.wake.wake()
}

// SetDraining with true makes the node hand over its roles and be a candidate for none,
// until SetDraining(false).
func (es *Elections) SetDraining(draining bool) {
	es.draining.Store(draining)
	es.wake.wake()
}

// ErrNotLeader means that this node does not lead the role now.
var ErrNotLeader = errors.New("this node does not lead the role")

// Leads returns the fence of a role if this node leads it now, by local knowledge: within
// the trust window, after the takeover delay, and until the work must stop. False is
// certain. True is only certain once the fence confirms it.
func (es *Elections) Leads(role Role) (leaderstore.Fence, bool) {
	t := es.terms.get(role)
	if t == nil || !t.leads(time.Now()) {
		return leaderstore.Fence{}, false
	}
	return t.fence, true
}

// Join runs work as a part of the term that this node leads now. The context of the work
// ends with ctx and with the term; the cause is then leaderstore.ErrDeposed. The role is
// handed over once the work has returned or has exceeded the stop timeout, as for a
// LeaderFunc. Join returns the error of the work, or ErrNotLeader if it did not call it.
func (es *Elections) Join(ctx context.Context, role Role, work WorkFunc) error {
	t := es.terms.get(role)
	if t == nil || !t.join(time.Now()) {
		return ErrNotLeader
	}
	defer t.joined.Done()
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(t.ctx, func() { cancel(leaderstore.ErrDeposed) }) //nolint:contextcheck // two contexts end the work
	defer stop()
	return work(working, t.fence)
}

// StepDown makes this node stop the work of a role that it leads and hand the role over. It
// returns nil once the term has ended here, even if the work still runs. It returns
// ErrNotLeader if the node does not lead, or the error of ctx; the request remains in
// effect then.
func (es *Elections) StepDown(ctx context.Context, role Role) error {
	t := es.terms.get(role)
	if t == nil {
		return ErrNotLeader
	}
	t.stepDown.Store(true)
	es.wake.wake()
	select {
	case <-t.ctx.Done():
	case <-ctx.Done():
		if t.ctx.Err() == nil { // otherwise ctx belongs to the work of the term
			return ctx.Err()
		}
	}
	return nil
}

// Run holds elections until ctx ends, on a high-priority thread, so that renewals do not
// wait for work. It then stops the work of every role that the node leads, waits for it,
// and resigns. An error names work that did not stop in time.
func (es *Elections) Run(ctx context.Context) error {
	return watchdog.RunHighPriority(func() error { return es.runSessions(ctx) })
}

func (es *Elections) runSessions(ctx context.Context) error {
	for reported := false; ctx.Err() == nil; {
		err := es.runSession(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		es.opts.OnChange()
		if errors.Is(err, leaderstore.ErrUnfit) {
			return errors.Join(err, es.awaitAllWork())
		}
		if !reported || !errors.Is(err, errOpen) {
			es.opts.Logger.WarnContext(ctx, "election session lost, opening another", "error", err)
		}
		reported = errors.Is(err, errOpen)
		watchdog.Sleep(ctx, reopenDelay/2+rand.N(reopenDelay))
	}
	return es.awaitAllWork()
}

// awaitAllWork waits for the work of ended terms, for each until its stop timeout.
func (es *Elections) awaitAllWork() error {
	var errs []error
	for _, e := range es.electors {
		if !e.awaitWork() {
			errs = append(errs, fmt.Errorf("the work of %s does not stop", e.Role))
		}
	}
	return errors.Join(errs...)
}

// errOpen marks a failure to connect. Consecutive failures are logged once.
var errOpen = errors.New("no election session")

// runSession opens a session and runs the elections on it until it breaks or ctx ends.
func (es *Elections) runSession(ctx context.Context) error {
	session, err := es.opts.OpenSession(ctx)
	if err != nil {
		return errors.Join(errOpen, err)
	}
	defer session.Close()
	es.opts.OnChange() // changes before the session was opened were not notified on it
	l := &electionLoop{Elections: es, session: session, idleTimeoutReset: true}
	if err := l.run(ctx); err != nil {
		session.Close() // free the locks first
		for _, e := range es.electors {
			e.depose(err)
		}
		return err
	}
	return nil
}

// waker interrupts a wait from another goroutine. A wake before the wait interrupts the
// next wait.
type waker struct {
	mu      sync.Mutex
	cancel  context.CancelFunc
	pending bool
}

func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = true
	if w.cancel != nil {
		w.cancel()
	}
}

// context returns a context that ends at deadline, with parent or on wake.
func (w *waker) context(parent context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(parent, deadline)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel = cancel
	if w.pending {
		cancel()
	}
	w.pending = false
	return ctx, cancel
}
