package roles

import (
	"context"
	"errors"
	"log/slog"
	"slices"
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

// serverCheckInterval is how often a role whose work has returned checks whether the server
// has finished the work's last transaction.
const serverCheckInterval = 5 * time.Millisecond

// starvedCheckInterval is how often work is checked that has exceeded its stop timeout by
// the clock, but not by the time for which the process ran.
const starvedCheckInterval = 100 * time.Millisecond

// resumeInterval is how long a lapsed node waits before it tries again to acquire the next
// term, when a last transaction of its own still held the role's row.
const resumeInterval = 50 * time.Millisecond

type state int

const (
	standby state = iota
	leading
	stopping // the work must stop; the lease is renewed until it has returned or its stop timeout is over
	lapsed   // the trust window ended before a renewal was confirmed, but the session may be alive
)

// elector is the state of one role in Elections. Only the goroutine of the election loop
// uses it, except for the trust timer.
type elector struct {
	RoleConfig
	elections *Elections
	logger    *slog.Logger

	state          state
	backOffUntil   time.Time // until then the node takes the role only on request or from a later leader
	handedOverTerm int64     // the term that this node handed over on request; 0 if its work failed
	fence          leaderstore.Fence
	since          time.Time
	trustUntil     time.Time
	trustTimer     *time.Timer
	reason         string
	stopDeadline   time.Time     // when the stop timeout of the work is over
	stopRuntime    time.Duration // the same, as time for which the process ran
	overdue        bool          // the exceeded stop timeout was logged
	serverDeadline time.Time     // until when resigning waits for the server to finish the work's transaction; zero: no wait yet
	cause          func() error  // why the context of the work has ended; nil: it has not
	cancel         context.CancelCauseFunc
	watchdog       *watchdog.Watchdog
	done           chan error  // nil once the work of the last term has returned
	term           *activeTerm // the last term
	renewals       renewalSum  // of the last term
}

func newElector(es *Elections, config RoleConfig) *elector {
	logger := es.opts.Logger.With("role", string(config.Role), "node", es.opts.NodeID)
	return &elector{RoleConfig: config, elections: es, logger: logger}
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

// startTerm starts the work of a committed term. The work inherits the values of ctx, but
// not its end: the work is stopped in order.
func (e *elector) startTerm(ctx context.Context, acquired leaderstore.AcquiredTerm, sent time.Time) {
	e.renewals = renewalSum{since: sent, last: sent}
	e.state, e.fence, e.reason, e.since = leading, acquired.Fence, reasonResigned, sent
	e.fence.Refused = e.elections.opts.Metrics.LeaderFencedWrites.WithLabelValues(string(e.Role), e.elections.opts.NodeID)
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	e.watchdog = watchdog.New(e.elections.opts.LeaseDuration)
	working = e.watchdog.Context(working)
	done := make(chan error, 1)
	e.cancel, e.done = cancel, done
	e.term = &activeTerm{fence: e.fence, ended: working.Done(), cancel: cancel, takeoverDone: e.AwaitPredecessor == nil}
	e.cause = func() error { return context.Cause(working) }
	e.trustTimer, e.overdue, e.serverDeadline = nil, false, time.Time{}
	e.extendTrust(sent)
	e.countElection("won")
	e.observeGap(acquired)
	e.logElected(ctx, acquired)
	go e.runTerm(working, e.term, done)
	e.elections.termBegan(e.Role, e.term)
}

// runTerm runs the LeaderFunc of a term, and waits for the work that joined the term.
func (e *elector) runTerm(ctx context.Context, t *activeTerm, done chan<- error) {
	defer e.elections.wake.wake()
	var err error
	if e.AwaitPredecessor == nil || e.AwaitPredecessor(ctx, t.fence) {
		e.elections.markTakeoverDone(t)
		err = e.Lead(ctx, t.fence)
	}
	e.elections.workReturned(t, err)
	t.joined.Wait()
	done <- err
}

func (e *elector) logElected(ctx context.Context, acquired leaderstore.AcquiredTerm) {
	logger := e.logger.With("term", e.fence.Term)
	if acquired.Gap >= 0 {
		logger = logger.With("gap", acquired.Gap)
	}
	logger.InfoContext(ctx, "became leader")
}

// extendTrust opens a trust window that begins at sent. It returns false if the previous
// window had already ended: the work is stopping then.
func (e *elector) extendTrust(sent time.Time) bool {
	inTime := e.trustTimer == nil || e.trustTimer.Stop()
	e.trustUntil = sent.Add(TrustWindow(e.elections.opts.LeaseDuration))
	e.elections.setTrustUntil(e.term, e.trustUntil)
	if e.OnRenewed != nil {
		e.OnRenewed(sent)
	}
	if e.state == lapsed || !inTime {
		return inTime
	}
	cancel, fence := e.cancel, e.fence
	e.trustTimer = time.AfterFunc(time.Until(e.trustUntil), func() {
		cancel(errTrustExpired)
		e.markLost(fence, errTrustExpired)
		e.elections.wake.wake()
	})
	e.setGauge(true)
	return true
}

// handleRenewal applies the result of a renewal.
func (e *elector) handleRenewal(still []leaderstore.Renewed, sent time.Time) {
	if e.state == standby {
		return
	}
	i := slices.IndexFunc(still, func(r leaderstore.Renewed) bool { return r.Role == string(e.Role) })
	if i < 0 {
		e.handleReplaced()
		return
	}
	e.renewals.add(sent)
	if !e.extendTrust(sent) {
		e.lapse()
	}
	if still[i].HandOver {
		e.handOver(still[i].Target)
	}
}

// handleReplaced ends a term that the database no longer has, for instance because its row
// was deleted. Once the work has stopped, the role is resigned, which frees its lock.
func (e *elector) handleReplaced() {
	if e.state == stopping {
		return
	}
	e.markLost(e.fence, errReplaced)
	e.setGauge(false)
	e.stop(reasonUnknown, errReplaced, e.stopTimeout())
}

// lapse ends the term because its trust window has ended. The session and its lock may
// still exist, if only the process or the database was slow. This node then acquires the
// next term once its work has stopped: where every node is slow, a hand-over does not help.
func (e *elector) lapse() {
	if e.state != leading {
		return
	}
	e.state = lapsed
	e.trustTimer.Stop()
	e.stopWork(errTrustExpired, e.stopTimeout())
	e.markLost(e.fence, errTrustExpired)
	e.setGauge(false)
}

// markLost records that a term has ended without an update of the database. The trust timer
// also calls it.
func (e *elector) markLost(fence leaderstore.Fence, cause error) {
	if e.elections.termEnded(e.Role, fence, Lost) {
		e.logger.Warn("lost leadership", "term", fence.Term, "error", cause)
	}
}

// canResume reports whether a lapsed role is ready for its next term.
func (e *elector) canResume() bool { return e.state == lapsed && e.workDone() }

// workDone reports whether no work of the last term is running.
func (e *elector) workDone() bool { return e.done == nil || len(e.done) > 0 }

// handOver gives the role up because an operator requested it.
func (e *elector) handOver(target string) {
	if e.state != leading && e.state != lapsed {
		return
	}
	e.logger.Info("handing over on request", "term", e.fence.Term, "target", target)
	e.backOff(e.fence.Term)
	reason := reasonSteppedDown
	if target != "" {
		reason = reasonTransferred
	}
	e.stop(reason, errStopping, e.stopTimeout())
}

// stopTimeout returns how long work may take to stop.
func (e *elector) stopTimeout() time.Duration {
	if e.StopTimeout > 0 {
		return e.StopTimeout
	}
	return e.elections.opts.LeaseDuration
}

// trustExpired reports whether the trust window has ended.
func (e *elector) trustExpired(now time.Time) bool {
	return e.state == leading && !now.Before(e.trustUntil)
}

// stop ends the context of the work. The role is resigned once the work has returned or the
// timeout is over.
func (e *elector) stop(reason string, cause error, timeout time.Duration) {
	if e.state != leading && e.state != lapsed {
		return
	}
	e.state, e.reason = stopping, reason
	e.stopWork(cause, timeout)
}

// stopWork ends the context of the work, which must then return within timeout.
func (e *elector) stopWork(cause error, timeout time.Duration) {
	e.stopDeadline, e.stopRuntime = time.Now().Add(timeout), e.watchdog.Runtime()+timeout
	e.cancel(cause)
}

// stopOverdue reports whether the work has exceeded its stop timeout. Time for which the
// process did not run does not count.
func (e *elector) stopOverdue(now time.Time) bool {
	return !e.workDone() && !now.Before(e.stopDeadline) && e.watchdog.Runtime() >= e.stopRuntime
}

// checkProgress gives the role up when the work has stalled for one lease of the process's
// running time.
func (e *elector) checkProgress(now time.Time) {
	if e.state != leading {
		return
	}
	part, stalled := e.watchdog.Stalled(now)
	if !stalled || len(e.done) > 0 {
		return
	}
	e.logger.Error("the leader's work has stalled, giving up the role", "term", e.fence.Term, "part", part)
	e.backOff(0)
	e.stop(reasonSteppedDown, errStalled, e.elections.opts.RefreshInterval)
}

// exceededStopTimeout reports whether stopping work has exceeded its stop timeout. The role
// is resigned even then: the fence rejects what the work still writes.
func (e *elector) exceededStopTimeout(now time.Time) bool {
	if e.state != stopping && e.state != lapsed || !e.stopOverdue(now) {
		return false
	}
	e.state, e.reason = stopping, reasonLeaseExpired
	return true
}

// serverMayCommit reports whether to wait until the server has finished what the work sent
// to it before the role is resigned. The wait is at most one refresh interval. There is
// none for work that exceeded its stop timeout.
func (e *elector) serverMayCommit(now time.Time) bool {
	if len(e.done) == 0 {
		return false
	}
	if e.serverDeadline.IsZero() {
		e.serverDeadline = now.Add(e.elections.opts.RefreshInterval)
	}
	return now.Before(e.serverDeadline)
}

// backOff starts the back-off: for a while the node leaves the role to others.
func (e *elector) backOff(handedOverTerm int64) {
	e.backOffUntil, e.handedOverTerm = time.Now().Add(e.elections.opts.BackOff), handedOverTerm
}

// eligible reports whether this node is a candidate for the role. It is not while the work
// of an earlier term runs, because the work must not run twice.
func (e *elector) eligible() bool { return e.state == standby && e.done == nil }

// nextCheck returns when the elector must be checked if nothing else happens before.
func (e *elector) nextCheck() time.Time {
	switch {
	case e.state == leading:
		if due := e.watchdog.Due(); !due.IsZero() {
			return due.Add(1)
		}
		return time.Time{} // all of the work waits for the database
	case e.state == stopping && !e.serverDeadline.IsZero():
		return time.Now().Add(serverCheckInterval)
	case e.canResume():
		return time.Now().Add(resumeInterval)
	case e.done != nil && !e.overdue:
		return e.nextOverdueCheck()
	default:
		return time.Time{}
	}
}

// nextOverdueCheck returns when stopOverdue may become true. While the process is starved,
// that time is unknown.
func (e *elector) nextOverdueCheck() time.Time {
	if now := time.Now(); !now.Before(e.stopDeadline) {
		return now.Add(starvedCheckInterval)
	}
	return e.stopDeadline
}

// workEnded reports whether stopping work has returned.
func (e *elector) workEnded() bool { return e.state == stopping && len(e.done) > 0 }

// checkReturned gives the role up when its LeaderFunc returned before the end of its context.
// The node then backs off.
func (e *elector) checkReturned() {
	if e.state != leading {
		return
	}
	switch over, err := e.elections.leaderFuncReturned(e.term); {
	case !over:
	case errors.Is(e.cause(), errTrustExpired):
		e.lapse()
	default:
		e.logger.Error("the leader's work ended, giving up the role", "term", e.fence.Term, "error", err)
		e.backOff(0)
		e.stop(reasonSteppedDown, errStopping, e.stopTimeout())
	}
}

func (e *elector) endResigned(ctx context.Context) {
	e.logger.InfoContext(ctx, "resigned", "term", e.fence.Term, "reason", e.reason)
	e.endTerm(e.reason)
	e.reap(time.Now())
}

// depose ends the term at once because the session is gone or no longer trusted.
func (e *elector) depose(cause error) {
	if e.state == standby {
		return
	}
	e.markLost(e.fence, cause)
	e.stopWork(cause, e.elections.opts.LeaseDuration)
	e.endTerm(Lost)
}

// endTerm returns to standby. The work may still be stopping.
func (e *elector) endTerm(reason string) {
	e.trustTimer.Stop()
	e.cancel(errStopping)
	e.state = standby
	e.setGauge(false)
	e.elections.termEnded(e.Role, e.fence, reason)
}

// reap clears the work of an ended term once it has returned, and logs once that it
// exceeded its stop timeout.
func (e *elector) reap(now time.Time) {
	if e.state != standby || e.done == nil {
		return
	}
	select {
	case err := <-e.done:
		if e.overdue {
			e.logger.Warn("the work of an ended term has returned at last", "term", e.fence.Term, "error", err)
		}
		e.clearWork()
	default:
		if !e.overdue && e.stopOverdue(now) {
			e.overdue = true
			e.logger.Error("the work of an ended term does not stop; this node is no candidate for the role until it returns",
				"term", e.fence.Term)
		}
	}
}

// clearWork forgets work that has returned.
func (e *elector) clearWork() {
	e.done = nil
	e.watchdog.Stop()
}

// awaitWork waits for the work of the last term until its stop timeout. It reports whether
// the work has returned.
func (e *elector) awaitWork() bool {
	if e.done == nil {
		return true
	}
	overdue := time.NewTimer(time.Until(e.stopDeadline))
	defer overdue.Stop()
	select {
	case err := <-e.done:
		e.logReturned(err)
		return true
	case <-overdue.C:
	}
	select {
	case err := <-e.done: // the work returned while there was no session
		e.logReturned(err)
		return true
	default:
		return false
	}
}

func (e *elector) logReturned(err error) {
	if err != nil {
		e.logger.Debug("the leader's work ended", "term", e.fence.Term, "error", err)
	}
	e.clearWork()
}

func (e *elector) countElection(result string) {
	e.elections.opts.Metrics.LeaderElections.WithLabelValues(string(e.Role), e.elections.opts.NodeID, result).Inc()
}

func (e *elector) observeGap(acquired leaderstore.AcquiredTerm) {
	labels := []string{string(e.Role), e.elections.opts.NodeID}
	if acquired.Gap >= 0 {
		e.elections.opts.Metrics.LeaderGapSeconds.WithLabelValues(labels...).Observe(acquired.Gap.Seconds())
	}
	if acquired.Failover {
		e.elections.opts.Metrics.LeaderFailovers.WithLabelValues(labels...).Inc()
	}
}

func (e *elector) setGauge(leads bool) {
	var lead metrics.Lead
	if leads {
		lead = metrics.Lead{Since: e.since, TrustedUntil: e.trustUntil}
	}
	e.elections.opts.Metrics.SetLead(string(e.Role), e.elections.opts.NodeID, lead)
}
