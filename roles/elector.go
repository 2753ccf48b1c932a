package roles

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

// trustFraction is the share of the lease for which a leader trusts a renewal. The rest is
// the margin before the server frees the lock.
const trustFraction = 0.8

// TrustWindow returns how long a leader trusts a renewal, counted from the time at which it
// was sent.
func TrustWindow(lease time.Duration) time.Duration {
	return time.Duration(trustFraction * float64(lease))
}

// Reasons for the end of a term, as in forge_leader_history.
const (
	reasonResigned     = "resigned"
	reasonSteppedDown  = "stepped_down"
	reasonTransferred  = "transferred"
	reasonLeaseExpired = "lease_expired"
	reasonUnknown      = "unknown"
)

var (
	errTrustExpired = errors.New("the trust window ended before a renewal was confirmed")
	errReplaced     = errors.New("the database no longer names this node as the leader")
	errStopping     = errors.New("the leader resigns")
	errStalled      = errors.New("the leader's work has stalled")
)

const (
	// resignInterval is how often a role whose work has returned checks whether the server
	// has finished the work's last transaction.
	resignInterval = 5 * time.Millisecond
	// resumeInterval is how long a lapsed node waits before it tries again to acquire the
	// next term, when a last transaction of its own still held the role's row.
	resumeInterval = 50 * time.Millisecond
)

// state is the state of one role on this node. The package documentation has the picture.
// The session holds the lock, and renews the lease, from leading to resuming.
type state int

const (
	standby   state = iota // no term and no work; a candidate
	leading                // the work runs
	stopping               // the work must stop, and the role is then resigned
	resigning              // the work has stopped, or must be given up: the loop resigns the role
	lapsed                 // the trust window ended, so the work must stop; the session may be alive
	resuming               // the work of the lapsed term has stopped: the loop acquires the next one
	deposed                // the term ended with its session; its work must stop
	hung                   // the term ended, and its work exceeded the stop timeout
)

// elector is the state machine of one role. The election loop calls step when something may
// have happened, and the other transitions when a statement has returned. The state tells
// the loop which statements to send.
type elector struct {
	RoleConfig
	opts   *Options
	terms  *activeTerms
	wake   func() // makes the loop call step; safe for concurrent use
	logger *slog.Logger

	state    state
	term     *term     // the last term; nil before the first
	reason   string    // of the end of the term, from stopping on
	resignBy time.Time // in resigning: until when to wait for the server

	backOffUntil   time.Time // until then the node takes the role only on request or from a later leader
	handedOverTerm int64     // the term that this node handed over on request; 0 if its work failed
}

func newElector(config RoleConfig, opts *Options, terms *activeTerms, wake func()) *elector {
	config.StopTimeout = cmp.Or(config.StopTimeout, opts.LeaseDuration)
	logger := opts.Logger.With("role", string(config.Role), "node", opts.NodeID)
	return &elector{RoleConfig: config, opts: opts, terms: terms, wake: wake, logger: logger}
}

// holdsTerm reports whether the session holds the role's lock and a term to renew.
func (e *elector) holdsTerm() bool { return leading <= e.state && e.state <= resuming }

// deadline returns when step must be called if nothing happens before; zero: it need not.
// The end of the trust window is an event: its timer runs even while the loop waits for a
// statement.
func (e *elector) deadline(now time.Time) time.Time {
	switch e.state {
	case leading:
		return e.term.stallDeadline()
	case stopping, lapsed, deposed:
		return e.term.stopDeadline(now)
	case resigning:
		return now.Add(resignInterval)
	case resuming:
		return now.Add(resumeInterval)
	case standby, hung:
	}
	return time.Time{}
}

// step changes the state until nothing more has happened. leave, if not empty, is the
// reason for which the node gives all of its roles up. step returns true if a trust window
// has ended: the next renewal shows whether the session is alive.
func (e *elector) step(leave string) (trustEnded bool) {
	now := time.Now()
	trustEnded = e.state == leading && e.term.trustExpired(now)
	for from := state(-1); from != e.state; {
		switch from = e.state; from {
		case leading:
			e.stepLeading(now, leave)
		case stopping:
			e.stepStopping(now)
		case lapsed:
			e.stepLapsed(now, leave)
		case resuming:
			e.stopIfRequested(leave)
		case deposed:
			e.stepDeposed(now)
		case hung:
			e.stepHung()
		case standby, resigning: // only statements change these
		}
	}
	return trustEnded
}

// stepLeading ends a term whose trust window has ended, that must be handed over, or whose
// work has returned or stalled.
func (e *elector) stepLeading(now time.Time, leave string) {
	part, stalled := e.term.watchdog.Stalled(now)
	switch returned, err := e.term.result(); {
	case e.term.trustExpired(now): // first, because the whole process may have been paused
		e.lapse()
	case e.stopIfRequested(leave):
	case returned:
		e.logger.Error("the leader's work ended, giving up the role", "term", e.term.fence.Term, "error", err)
		e.backOff(0)
		e.stop(reasonSteppedDown, errStopping, e.StopTimeout)
	case stalled:
		e.logger.Error("the leader's work has stalled, giving up the role", "term", e.term.fence.Term, "part", part)
		e.backOff(0)
		e.stop(reasonSteppedDown, errStalled, e.opts.RefreshInterval)
	}
}

// stepStopping resigns once the work has returned or has exceeded its stop timeout.
func (e *elector) stepStopping(now time.Time) {
	switch {
	case e.term.finished():
		e.state, e.resignBy = resigning, now.Add(e.opts.RefreshInterval)
	case e.term.overdue(now):
		e.giveWorkUp(now)
	}
}

// stepLapsed resumes on the same session once the work has returned: where every node is
// slow, a hand-over does not help.
func (e *elector) stepLapsed(now time.Time, leave string) {
	switch {
	case e.stopIfRequested(leave):
	case e.term.finished():
		e.state = resuming
	case e.term.overdue(now):
		e.giveWorkUp(now)
	}
}

// stepDeposed makes the node a candidate once the work has returned.
func (e *elector) stepDeposed(now time.Time) {
	switch {
	case e.term.finished():
		e.state = standby
	case e.term.overdue(now):
		e.hang()
	}
}

func (e *elector) stepHung() {
	if e.term.finished() {
		_, err := e.term.result()
		e.logger.Warn("the work of an ended term has returned at last", "term", e.term.fence.Term, "error", err)
		e.state = standby
	}
}

// stopIfRequested stops the work if the node gives all of its roles up or if StepDown was
// called.
func (e *elector) stopIfRequested(leave string) bool {
	switch {
	case leave != "":
		e.stop(leave, errStopping, e.StopTimeout)
	case e.term.stepDown.Load():
		e.handOver("")
	default:
		return false
	}
	return true
}

// handOver gives the role up because an operator requested it.
func (e *elector) handOver(target string) {
	if !e.continues() {
		return
	}
	e.logger.Info("handing over on request", "term", e.term.fence.Term, "target", target)
	e.backOff(e.term.fence.Term)
	reason := reasonSteppedDown
	if target != "" {
		reason = reasonTransferred
	}
	e.stop(reason, errStopping, e.StopTimeout)
}

// continues reports whether the node will go on to lead, in this term or the next.
func (e *elector) continues() bool {
	return e.state == leading || e.state == lapsed || e.state == resuming
}

// stop ends the context of the work. The role is resigned once the work has returned or the
// timeout is over.
func (e *elector) stop(reason string, cause error, timeout time.Duration) {
	e.state, e.reason = stopping, reason
	e.term.stop(cause, timeout)
}

// lapse ends the term because its trust window has ended.
func (e *elector) lapse() {
	e.state = lapsed
	e.term.trustTimer.Stop()
	e.term.stop(errTrustExpired, e.StopTimeout)
	e.lost(e.term, errTrustExpired)
	e.setGauge(false)
}

// giveWorkUp resigns although the work has not returned: the fence rejects what it still
// writes.
func (e *elector) giveWorkUp(now time.Time) {
	e.state, e.reason, e.resignBy = resigning, reasonLeaseExpired, now
}

// hang makes the node no candidate until the work returns, because it must not run twice.
func (e *elector) hang() {
	e.state = hung
	e.logger.Error("the work of an ended term does not stop; this node is no candidate for the role until it returns",
		"term", e.term.fence.Term)
}

// backOff starts the back-off: for a while the node leaves the role to others.
func (e *elector) backOff(handedOverTerm int64) {
	e.backOffUntil, e.handedOverTerm = time.Now().Add(e.opts.BackOff), handedOverTerm
}

func (e *elector) lock() leaderstore.Lock {
	return leaderstore.Lock{Role: string(e.Role), ID: e.LockID, BySchema: e.BySchema}
}

// lockRequest returns the lock request for this role. While backing off, the node takes the
// role only when an operator requests it, or when a later leader has given it up. After
// failed work it takes the role only on request: otherwise the nodes would pass the role
// around without a pause.
func (e *elector) lockRequest(now time.Time) leaderstore.Lock {
	lock := e.lock()
	lock.OnlyOnRequest, lock.HandedOverTerm = now.Before(e.backOffUntil), e.handedOverTerm
	return lock
}

// lead begins the work of a committed term.
func (e *elector) lead(ctx context.Context, acquired leaderstore.AcquiredTerm, sent time.Time) {
	acquired.Fence.Refused = e.opts.Metrics.LeaderFencedWrites.WithLabelValues(e.labels()...)
	t := newTerm(ctx, acquired.Fence, sent, e.opts.LeaseDuration)
	t.takeoverDone.Store(e.TakeoverDelay == 0)
	e.state, e.term = leading, t
	e.trust(sent)
	e.countElection("won")
	e.observeGap(acquired)
	e.opts.Tracer.Elected(string(e.Role), e.opts.NodeID, t.fence.Term, sent, acquired.Gap)
	logger := e.logger.With("term", t.fence.Term)
	if acquired.Gap >= 0 {
		logger = logger.With("gap", acquired.Gap)
	}
	logger.InfoContext(ctx, "became leader")
	go t.run(func(ctx context.Context, fence leaderstore.Fence, watch *watchdog.Watchdog) error {
		if !e.awaitPredecessor(ctx, fence) {
			return nil
		}
		t.takeoverDone.Store(true)
		return e.Lead(ctx, fence, watch)
	}, e.wake)
	e.terms.begin(t)
}

// awaitPredecessor waits for work that a predecessor may have left running. It returns
// false when the term has ended during the wait.
func (e *elector) awaitPredecessor(ctx context.Context, fence leaderstore.Fence) bool {
	if e.TakeoverDelay == 0 {
		return true
	}
	reading, cancel := context.WithTimeout(ctx, e.opts.LeaseDuration/3)
	wait, err := e.opts.TakeoverWait(reading, fence, e.TakeoverDelay)
	cancel()
	wait = min(wait, e.TakeoverDelay)
	logger := e.logger.With("term", fence.Term)
	if err != nil && ctx.Err() == nil {
		wait = e.TakeoverDelay
		logger.WarnContext(ctx, "cannot read how the previous term ended, waiting for the whole takeover delay", "error", err)
	}
	if wait > 0 {
		logger.InfoContext(ctx, "waiting for work that the previous leader may have left running", "wait", wait)
	}
	return watchdog.Sleep(ctx, wait)
}

// renewed applies a confirmed renewal.
func (e *elector) renewed(r leaderstore.Renewed, sent time.Time) {
	e.term.renewals.add(sent)
	if inTime := e.trust(sent); !inTime && e.state == leading {
		e.lapse()
	}
	if r.HandOver {
		e.handOver(r.Target)
	}
}

// trust begins a trust window at sent. It returns false if the previous one had ended.
func (e *elector) trust(sent time.Time) (inTime bool) {
	t := e.term
	inTime = t.trust(sent.Add(TrustWindow(e.opts.LeaseDuration)), func() {
		e.lost(t, errTrustExpired)
		e.wake()
	})
	if e.OnRenewed != nil {
		e.OnRenewed(sent)
	}
	if inTime {
		e.setGauge(true)
	}
	return inTime
}

// replaced ends a term that the database no longer has, for instance because its row was
// deleted. Once the work has stopped, the role is resigned, which frees its lock.
func (e *elector) replaced() {
	if !e.continues() {
		return
	}
	e.lost(e.term, errReplaced)
	e.setGauge(false)
	e.stop(reasonUnknown, errReplaced, e.StopTimeout)
}

// lost records that a term has ended without an update of the database. It is safe for
// concurrent use.
func (e *elector) lost(t *term, cause error) {
	if e.terms.end(t, Lost) {
		e.logger.Warn("lost leadership", "term", t.fence.Term, "error", cause)
	}
}

// resigned ends a term whose row is vacated.
func (e *elector) resigned(ctx context.Context) {
	e.logger.InfoContext(ctx, "resigned", "term", e.term.fence.Term, "reason", e.reason)
	e.endTerm(e.reason)
	if e.state = standby; !e.term.finished() {
		e.hang()
	}
}

// depose ends the term at once because the session is gone or no longer trusted.
func (e *elector) depose(cause error) {
	if !e.holdsTerm() {
		return
	}
	e.lost(e.term, cause)
	e.term.stop(cause, e.opts.LeaseDuration)
	e.endTerm(Lost)
	e.state = deposed
}

func (e *elector) endTerm(reason string) {
	e.term.trustTimer.Stop()
	e.term.cancel(errStopping)
	e.setGauge(false)
	e.terms.end(e.term, reason)
}

// awaitWork waits for the work of an ended term until its stop timeout. It reports whether
// the work has returned.
func (e *elector) awaitWork() bool {
	if e.term == nil {
		return true
	}
	overdue := time.NewTimer(time.Until(e.term.stopBy))
	defer overdue.Stop()
	select {
	case <-e.term.done:
	case <-overdue.C:
	}
	return e.term.finished()
}

func (e *elector) labels() []string { return []string{string(e.Role), e.opts.NodeID} }

func (e *elector) countElection(result string) {
	e.opts.Metrics.LeaderElections.WithLabelValues(append(e.labels(), result)...).Inc()
}

func (e *elector) observeGap(acquired leaderstore.AcquiredTerm) {
	if acquired.Gap >= 0 {
		e.opts.Metrics.LeaderGapSeconds.WithLabelValues(e.labels()...).Observe(acquired.Gap.Seconds())
	}
	if acquired.Failover {
		e.opts.Metrics.LeaderFailovers.WithLabelValues(e.labels()...).Inc()
	}
}

func (e *elector) setGauge(leads bool) {
	var lead metrics.Lead
	if leads {
		lead = metrics.Lead{Since: e.term.acquired, TrustedUntil: e.term.trustUntil}
	}
	e.opts.Metrics.SetLead(string(e.Role), e.opts.NodeID, lead)
}
