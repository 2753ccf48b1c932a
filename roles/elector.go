package roles

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

// trustFraction of the lease is how long a leader trusts a renewal; the rest is
// the margin before the server frees the lock.
const trustFraction = 0.8

// TrustWindow is how long a leader trusts a renewal, counted from when it was
// sent.
func TrustWindow(lease time.Duration) time.Duration {
	return time.Duration(trustFraction * float64(lease))
}

// Reasons for the end of a tenure, as forge_leader_history has them.
const (
	reasonResigned     = "resigned"
	reasonSteppedDown  = "stepped_down"
	reasonTransferred  = "transferred"
	reasonLeaseExpired = "lease_expired"
	reasonUnknown      = "unknown"
)

var (
	errTrustOver = errors.New("the trust window ended before a renewal was confirmed")
	errReplaced  = errors.New("the database no longer names this node as the leader")
	errStopping  = errors.New("the leader resigns")
	errStalled   = errors.New("the leader's work does not turn")
)

// serverEvery is how long a role waits, whose work has ended here, until the server is
// asked again whether it has ended there.
const serverEvery = 5 * time.Millisecond

// starvedLook is how soon work is looked at again whose time is over by the clock and
// not by what the process had of it.
const starvedLook = 100 * time.Millisecond

// returnEvery is how long a node that lapsed waits before it tries again to begin the
// next term: a last transaction of its own still held the role's row.
const returnEvery = 50 * time.Millisecond

type state int

const (
	standby state = iota
	leading
	stopping // the work was told to end; renewed until it has, or should have
	lapsed   // the trust ended before a renewal was confirmed, and the session stands
)

// elector is one role's part of a Campaign. Only the campaign's goroutine
// touches it, but for the timer that ends the trust.
type elector struct {
	Contest
	campaign *Campaign
	logger   *slog.Logger

	state       state
	barredUntil time.Time // no campaign before, unless asked: it was given up here
	leftAt      int64     // the term that an operator had this node give up; 0: its work failed
	fence       leaderstore.Fence
	since       time.Time
	trustUntil  time.Time
	trust       *time.Timer
	reason      string
	stopBy      time.Time     // when work that was told to end is given up
	stopAfter   time.Duration // the same, by the time that the process has had
	overdue     bool          // that was said
	serverBy    time.Time     // when work that the server has not ended is given up; zero: not asked yet
	cause       func() error  // why the work was told to end; nil: it was not
	cancel      context.CancelCauseFunc
	progress    *progress.Watch
	done        chan error // not nil until the work of the last term has returned
	led         *lead      // the last term
	renewals    renewals   // of the last term
}

func newElector(c *Campaign, contest Contest) *elector {
	logger := c.opts.Logger.With("role", string(contest.Role), "node", c.opts.NodeID)
	return &elector{Contest: contest, campaign: c, logger: logger}
}

func (e *elector) lock() leaderstore.Lock {
	return leaderstore.Lock{Role: string(e.Role), ID: e.LockID, BySchema: e.BySchema}
}

// bid is the lock as this node campaigns for it: a role that it leaves to others it
// takes only if it is asked to, or when one of them has given it up again. Where the work
// has failed that would have the nodes pass it round without a pause.
func (e *elector) bid(now time.Time) leaderstore.Lock {
	lock := e.lock()
	lock.IfAsked, lock.LeftAt = now.Before(e.barredUntil), e.leftAt
	return lock
}

// lead starts the work of a term that was committed. The context's values go
// on; its end does not reach the work, which is told to stop in order.
func (e *elector) lead(ctx context.Context, minted leaderstore.Minted, sent time.Time) {
	e.renewals = renewals{since: sent, last: sent}
	e.state, e.fence, e.reason, e.since = leading, minted.Fence, reasonResigned, sent
	e.fence.Refused = e.campaign.opts.Metrics.LeaderFencedWrites.WithLabelValues(string(e.Role), e.campaign.opts.NodeID)
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	e.progress = progress.NewWatch(e.campaign.opts.LeaseDuration)
	working = e.progress.Context(working)
	done := make(chan error, 1)
	e.cancel, e.done = cancel, done
	e.led = &lead{fence: e.fence, ended: working.Done(), end: cancel, settled: e.Takeover == nil}
	e.cause = func() error { return context.Cause(working) }
	e.trust, e.overdue, e.serverBy = nil, false, time.Time{}
	e.extend(sent)
	e.count("won")
	e.observe(minted)
	e.announce(ctx, minted)
	go e.work(working, e.led, done)
	e.campaign.began(e.Role, e.led)
}

// work runs the Duty of a term, and waits for the work that joined it.
func (e *elector) work(ctx context.Context, l *lead, done chan<- error) {
	defer e.campaign.wake.poke()
	var err error
	if e.Takeover == nil || e.Takeover(ctx, l.fence) {
		e.campaign.takenOver(l)
		err = e.Duty(ctx, l.fence)
	}
	e.campaign.returned(l, err)
	l.joined.Wait()
	done <- err
}

func (e *elector) announce(ctx context.Context, minted leaderstore.Minted) {
	logger := e.logger.With("term", e.fence.Term)
	if minted.Gap >= 0 {
		logger = logger.With("gap", minted.Gap)
	}
	logger.InfoContext(ctx, "became leader")
}

// extend opens a trust window that began when the statement was sent. It returns
// false when the last one had ended before: the work is stopping then.
func (e *elector) extend(sent time.Time) bool {
	inTime := e.trust == nil || e.trust.Stop()
	e.trustUntil = sent.Add(TrustWindow(e.campaign.opts.LeaseDuration))
	e.campaign.trust(e.led, e.trustUntil)
	if e.Trusted != nil {
		e.Trusted(sent)
	}
	if e.state == lapsed || !inTime {
		return inTime
	}
	cancel, fence := e.cancel, e.fence
	e.trust = time.AfterFunc(time.Until(e.trustUntil), func() {
		cancel(errTrustOver)
		e.lose(fence, errTrustOver)
		e.campaign.wake.poke()
	})
	e.gauge(true)
	return true
}

// renewed takes the database's answer.
func (e *elector) renewed(still []leaderstore.Renewed, sent time.Time) {
	if e.state == standby {
		return
	}
	i := slices.IndexFunc(still, func(r leaderstore.Renewed) bool { return r.Role == string(e.Role) })
	if i < 0 {
		e.replaced()
		return
	}
	e.renewals.add(sent)
	if !e.extend(sent) {
		e.lapse()
	}
	if still[i].HandOver {
		e.handOver(still[i].Target)
	}
}

// replaced ends a term that the database no longer has, for instance because somebody
// deleted the role's row. The role is resigned, which frees its lock, when the work has
// stopped.
func (e *elector) replaced() {
	if e.state == stopping {
		return
	}
	e.lose(e.fence, errReplaced)
	e.gauge(false)
	e.stop(reasonUnknown, errReplaced, e.patience())
}

// lapse ends the term on this node because its trust window has ended. The session,
// and with it the lock, may well have outlasted that: the process or the database was
// slow. Then the next term is this node's again, once the work has stopped: where
// every node is slow, another one would do no better.
func (e *elector) lapse() {
	if e.state != leading {
		return
	}
	e.state = lapsed
	e.trust.Stop()
	e.tellWork(errTrustOver, e.patience())
	e.lose(e.fence, errTrustOver)
	e.gauge(false)
}

// lose notes that a term is over without a word from the database. The timer that
// ends the trust calls it, too.
func (e *elector) lose(fence leaderstore.Fence, cause error) {
	if e.campaign.ended(e.Role, fence, Lost) {
		e.logger.Warn("lost the lead", "term", fence.Term, "error", cause)
	}
}

// mayReturn says whether the next term of a role that lapsed can begin.
func (e *elector) mayReturn() bool { return e.state == lapsed && e.workOver() }

// workOver says whether no work of the last term is under way.
func (e *elector) workOver() bool { return e.done == nil || len(e.done) > 0 }

// handOver does what an operator asked for.
func (e *elector) handOver(target string) {
	if e.state != leading && e.state != lapsed {
		return
	}
	e.logger.Info("asked to hand over", "term", e.fence.Term, "target", target)
	e.bar(e.fence.Term)
	reason := reasonSteppedDown
	if target != "" {
		reason = reasonTransferred
	}
	e.stop(reason, errStopping, e.patience())
}

// patience with work that was asked to stop in order.
func (e *elector) patience() time.Duration {
	if e.Patience > 0 {
		return e.Patience
	}
	return e.campaign.opts.LeaseDuration
}

// distrusted says whether the lead is over by this node's own clock.
func (e *elector) distrusted(now time.Time) bool {
	return e.state == leading && !now.Before(e.trustUntil)
}

// stop tells the work to end; the role is resigned when it has, or when the
// patience with it is over.
func (e *elector) stop(reason string, cause error, patience time.Duration) {
	if e.state != leading && e.state != lapsed {
		return
	}
	e.state, e.reason = stopping, reason
	e.tellWork(cause, patience)
}

// tellWork tells the work to end, which it should within the patience.
func (e *elector) tellWork(cause error, patience time.Duration) {
	e.stopBy, e.stopAfter = time.Now().Add(patience), e.progress.Had()+patience
	e.cancel(cause)
}

// late says whether work that was told to end should have ended. Time that the
// machine kept from the process does not count.
func (e *elector) late(now time.Time) bool {
	return !e.workOver() && !now.Before(e.stopBy) && e.progress.Had() >= e.stopAfter
}

// checkProgress gives the role up when the work has not turned for a lease of time
// that the process had.
func (e *elector) checkProgress(now time.Time) {
	if e.state != leading {
		return
	}
	part, stalled := e.progress.Stalled(now)
	if !stalled || len(e.done) > 0 {
		return
	}
	e.logger.Error("the leader's work does not turn, giving up the role", "term", e.fence.Term, "part", part)
	e.bar(0)
	e.stop(reasonSteppedDown, errStalled, e.campaign.opts.RefreshInterval)
}

// overstays says whether the work was told to end and has not in time. The role
// goes to another nevertheless: the fence refuses what the work still writes.
func (e *elector) overstays(now time.Time) bool {
	if e.state != stopping && e.state != lapsed || !e.late(now) {
		return false
	}
	e.state, e.reason = stopping, reasonLeaseExpired
	return true
}

// awaitsServer says whether the role is resigned only when the server has ended what
// the work has sent to it. For work that overstays, or much later, it is not: nobody
// else can lead before that either.
func (e *elector) awaitsServer(now time.Time) bool {
	if len(e.done) == 0 {
		return false
	}
	if e.serverBy.IsZero() {
		e.serverBy = now.Add(e.campaign.opts.RefreshInterval)
	}
	return now.Before(e.serverBy)
}

// bar keeps this node from standing for the role of its own accord for a while, so
// that another can try.
func (e *elector) bar(leftAt int64) {
	e.barredUntil, e.leftAt = time.Now().Add(e.campaign.opts.StandBack), leftAt
}

// stands says whether this node campaigns for the role. While the work of an
// earlier term still runs it does not: there must not be two of it.
func (e *elector) stands() bool { return e.state == standby && e.done == nil }

// nextLook is when the elector has to be looked at without any other cause.
func (e *elector) nextLook() time.Time {
	switch {
	case e.state == leading:
		if due := e.progress.Due(); !due.IsZero() {
			return due.Add(1)
		}
		return time.Time{} // all of the work waits
	case e.state == stopping && !e.serverBy.IsZero():
		return time.Now().Add(serverEvery)
	case e.mayReturn():
		return time.Now().Add(returnEvery)
	case e.done != nil && !e.overdue:
		return e.nextLate()
	default:
		return time.Time{}
	}
}

// nextLate is when late may begin to hold. While the process is starved that is not
// known.
func (e *elector) nextLate() time.Time {
	if now := time.Now(); !now.Before(e.stopBy) {
		return now.Add(starvedLook)
	}
	return e.stopBy
}

// workEnded says whether work that was told to end has.
func (e *elector) workEnded() bool { return e.state == stopping && len(e.done) > 0 }

// checkReturned gives the role up when its Duty has returned unasked, and bars this
// node for a while, so that another can try.
func (e *elector) checkReturned() {
	if e.state != leading {
		return
	}
	switch over, err := e.campaign.dutyOver(e.led); {
	case !over:
	case errors.Is(e.cause(), errTrustOver):
		e.lapse()
	default:
		e.logger.Error("the leader's work ended, giving up the role", "term", e.fence.Term, "error", err)
		e.bar(0)
		e.stop(reasonSteppedDown, errStopping, e.patience())
	}
}

func (e *elector) resigned(ctx context.Context) {
	e.logger.InfoContext(ctx, "resigned", "term", e.fence.Term, "reason", e.reason)
	e.end(e.reason)
	e.reap(time.Now())
}

// depose ends the lead at once: the session is gone or no longer trusted.
func (e *elector) depose(cause error) {
	if e.state == standby {
		return
	}
	e.lose(e.fence, cause)
	e.tellWork(cause, e.campaign.opts.LeaseDuration)
	e.end(Lost)
}

// end forgets the term; the work may still be stopping.
func (e *elector) end(reason string) {
	e.trust.Stop()
	e.cancel(errStopping)
	e.state = standby
	e.gauge(false)
	e.campaign.ended(e.Role, e.fence, reason)
}

// reap notices that the work of a term that is over has returned, and says once
// when it should have.
func (e *elector) reap(now time.Time) {
	if e.state != standby || e.done == nil {
		return
	}
	select {
	case err := <-e.done:
		if e.overdue {
			e.logger.Warn("the work of an ended term has returned at last", "term", e.fence.Term, "error", err)
		}
		e.forgetWork()
	default:
		if !e.overdue && e.late(now) {
			e.overdue = true
			e.logger.Error("the work of an ended term does not stop; this node will not stand for the role before it does",
				"term", e.fence.Term)
		}
	}
}

// forgetWork is for work that has returned.
func (e *elector) forgetWork() {
	e.done = nil
	e.progress.Stop()
}

// await waits until the work of the last term has returned, or should have.
func (e *elector) await() bool {
	if e.done == nil {
		return true
	}
	overdue := time.NewTimer(time.Until(e.stopBy))
	defer overdue.Stop()
	select {
	case err := <-e.done:
		e.returned(err)
		return true
	case <-overdue.C:
	}
	select {
	case err := <-e.done: // long ago, while there was no session to notice it
		e.returned(err)
		return true
	default:
		return false
	}
}

func (e *elector) returned(err error) {
	if err != nil {
		e.logger.Debug("the leader's work ended", "term", e.fence.Term, "error", err)
	}
	e.forgetWork()
}

func (e *elector) count(result string) {
	e.campaign.opts.Metrics.LeaderElections.WithLabelValues(string(e.Role), e.campaign.opts.NodeID, result).Inc()
}

func (e *elector) observe(minted leaderstore.Minted) {
	labels := []string{string(e.Role), e.campaign.opts.NodeID}
	if minted.Gap >= 0 {
		e.campaign.opts.Metrics.LeaderGapSeconds.WithLabelValues(labels...).Observe(minted.Gap.Seconds())
	}
	if minted.Failover {
		e.campaign.opts.Metrics.LeaderFailovers.WithLabelValues(labels...).Inc()
	}
}

func (e *elector) gauge(leads bool) {
	var lead metrics.Lead
	if leads {
		lead = metrics.Lead{Since: e.since, TrustedUntil: e.trustUntil}
	}
	e.campaign.opts.Metrics.SetLead(string(e.Role), e.campaign.opts.NodeID, lead)
}
