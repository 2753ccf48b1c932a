package roles

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

// starvedCheckInterval is how often work is checked that has exceeded its stop timeout by
// the clock, but not by the time for which the process ran.
const starvedCheckInterval = 100 * time.Millisecond

// term is one term of this node and its work. The elector of the role begins and ends it.
type term struct {
	fence    leaderstore.Fence
	acquired time.Time       // when the statement that acquired it was sent
	ctx      context.Context //nolint:containedctx // of the work: it ends with the term, not with a call
	cancel   context.CancelCauseFunc
	watchdog *watchdog.Watchdog
	joined   sync.WaitGroup // work that Join started
	done     chan struct{}  // closed once the LeaderFunc and the joined work have returned

	takeoverDone atomic.Bool // no work of a predecessor can be running
	stepDown     atomic.Bool // requested

	mu         sync.Mutex
	trustUntil time.Time
	returned   bool // the LeaderFunc has returned err
	err        error

	// Only the elector uses these fields.
	trustTimer    *time.Timer
	renewals      renewalSum
	stopBy        time.Time     // when the stop timeout of the work is over
	stopByRuntime time.Duration // the same, as time for which the process ran
}

// newTerm returns a term whose work has not begun. The work inherits the values of ctx, but
// not its end: the elector stops it.
func newTerm(ctx context.Context, fence leaderstore.Fence, sent time.Time, lease time.Duration) *term {
	t := &term{
		fence: fence, acquired: sent, renewals: renewalSum{since: sent, last: sent},
		watchdog: watchdog.New(lease), done: make(chan struct{}),
	}
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return t
}

// errExited is the error of a LeaderFunc that ended its goroutine.
var errExited = errors.New("the work ended its goroutine (runtime.Goexit, which FailNow of package testing calls too); want it to return an error")

// run calls the LeaderFunc and waits for it and for the work that joined the term. wake is
// called after each. The LeaderFunc has its own goroutine, which runtime.Goexit ends alone.
func (t *term) run(lead LeaderFunc, wake func()) {
	err := errExited
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = lead(t.ctx, t.fence, t.watchdog)
	}()
	<-ended
	t.mu.Lock()
	t.returned, t.err = true, err
	t.cancel(errStopping) // no work can join from here on
	t.mu.Unlock()
	wake()
	t.joined.Wait()
	t.watchdog.Stop()
	close(t.done)
	wake()
}

// leads reports whether the node may rely on the term.
func (t *term) leads(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reliable(now)
}

func (t *term) reliable(now time.Time) bool {
	return t.takeoverDone.Load() && t.ctx.Err() == nil && now.Before(t.trustUntil)
}

// join adds work to wait for if the node may rely on the term.
func (t *term) join(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.reliable(now) {
		return false
	}
	t.joined.Add(1)
	return true
}

// result reports whether the LeaderFunc has returned, and its error.
func (t *term) result() (returned bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.returned, t.err
}

// trust begins a trust window. expired is called at its end, even while the elector waits
// for a statement. trust returns false if the previous window had already ended: the work
// is stopping then.
func (t *term) trust(until time.Time, expired func()) (inTime bool) {
	inTime = t.trustTimer == nil || t.trustTimer.Stop()
	t.mu.Lock()
	t.trustUntil = until
	t.mu.Unlock()
	if inTime {
		t.trustTimer = time.AfterFunc(time.Until(until), func() {
			t.cancel(errTrustExpired)
			expired()
		})
	}
	return inTime
}

// trustExpired reports whether the trust window has ended, by the clock or by its timer.
func (t *term) trustExpired(now time.Time) bool {
	return !now.Before(t.trustUntil) || errors.Is(context.Cause(t.ctx), errTrustExpired)
}

// stop ends the context of the work, which must then return within timeout.
func (t *term) stop(cause error, timeout time.Duration) {
	t.stopBy, t.stopByRuntime = time.Now().Add(timeout), t.watchdog.Runtime()+timeout
	t.cancel(cause)
}

// finished reports whether all work of the term has returned.
func (t *term) finished() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// overdue reports whether stopping work has exceeded its stop timeout. Time for which the
// process did not run does not count.
func (t *term) overdue(now time.Time) bool {
	return !t.finished() && !now.Before(t.stopBy) && t.watchdog.Runtime() >= t.stopByRuntime
}

// stopDeadline returns when overdue may become true. While the process is starved, that
// time is unknown.
func (t *term) stopDeadline(now time.Time) time.Time {
	if now.Before(t.stopBy) {
		return t.stopBy
	}
	return now.Add(starvedCheckInterval)
}

// stallDeadline returns when the watchdog may find stalled work, or zero while all of the
// work waits for the database.
func (t *term) stallDeadline() time.Time {
	due := t.watchdog.Due()
	if due.IsZero() {
		return due
	}
	return due.Add(1)
}

// activeTerms holds the terms that this node leads. It is safe for concurrent use.
type activeTerms struct {
	onTerm   func(TermChange)
	onChange func()

	mu     sync.Mutex
	byRole map[Role]*term
}

// get returns the current term of a role; nil if this node does not lead the role.
func (a *activeTerms) get(role Role) *term {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byRole[role]
}

func (a *activeTerms) begin(t *term) {
	role := Role(t.fence.Role)
	a.mu.Lock()
	a.byRole[role] = t
	a.onTerm(TermChange{Role: role, Term: t.fence.Term, Leads: true})
	a.mu.Unlock()
	a.onChange()
}

// end records the end of a term. It returns false if the end was recorded before.
func (a *activeTerms) end(t *term, reason string) (ended bool) {
	role := Role(t.fence.Role)
	a.mu.Lock()
	if ended = a.byRole[role] == t; ended {
		delete(a.byRole, role)
		a.onTerm(TermChange{Role: role, Term: t.fence.Term, Reason: reason})
	}
	a.mu.Unlock()
	a.onChange()
	return ended
}
