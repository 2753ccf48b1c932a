package roles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/watchdog"

	"github.com/forge-scheduler/forge/leaderstore"
)

// LeaderFunc is the work of a role's leader. It runs during one term and must return soon
// after ctx ends: the role is handed over once it has returned, and one StopTimeout after
// ctx ended at the latest. The role is also given up when LeaderFunc returns earlier, or
// when it reports no progress for one lease. It reports progress with watchdog.Report,
// watchdog.Await and watchdog.Sleep.
type LeaderFunc func(ctx context.Context, fence leaderstore.Fence) error

// Locker acquires and releases advisory locks.
type Locker interface {
	TryLocks(ctx context.Context, locks []leaderstore.Lock) ([]string, error)
	Unlock(ctx context.Context, lock leaderstore.Lock) error
	ResetIdleTimeout(ctx context.Context) error
}

// TermStore acquires, renews and ends terms.
type TermStore interface {
	AcquireTerm(ctx context.Context, role string, seen leaderstore.SessionEnd) (leaderstore.AcquiredTerm, error)
	Renew(ctx context.Context, held []leaderstore.Held) ([]leaderstore.Renewed, error)
	Resign(ctx context.Context, lock leaderstore.Lock, term int64, reason string) error
	ForceResign(ctx context.Context, lock leaderstore.Lock, term int64, reason string) error
}

// Session is the node's only election session.
type Session interface {
	Locker
	TermStore
	Wait(ctx context.Context) (notified bool, err error)
	Close()
}

// OpenSession opens a lease-only session if byLease is set, and else a session that elects
// with advisory locks.
func OpenSession(ctx context.Context, cfg leaderstore.SessionConfig, roles []string, byLease bool) (Session, error) {
	if byLease {
		return asSession(leaderstore.OpenLease(ctx, cfg, roles))
	}
	return asSession(leaderstore.OpenSession(ctx, cfg, roles))
}

// asSession returns a nil interface, not an interface with a nil pointer, when err is set.
func asSession[S Session](session S, err error) (Session, error) {
	if err != nil {
		return nil, err
	}
	return session, nil
}

// RoleConfig configures one role in which the node is a candidate.
type RoleConfig struct {
	Role   Role
	LockID int64
	// BySchema is Lock.BySchema of package leaderstore.
	BySchema bool
	Lead     LeaderFunc
	// AwaitPredecessor, if set, waits before the LeaderFunc of a term begins. It returns
	// false when the term has ended during the wait.
	AwaitPredecessor func(ctx context.Context, fence leaderstore.Fence) bool
	// StopTimeout is how long the work may take to stop; the lease is renewed until then.
	// Default: one lease.
	StopTimeout time.Duration
	// OnRenewed, if set, is called after each acquired term and each confirmed renewal,
	// with the time at which the statement was sent: the lease runs from then on. It must
	// not block.
	OnRenewed func(sent time.Time)
}

// TermChange reports that a term of this node has begun or ended.
type TermChange struct {
	Role  Role
	Term  int64
	Leads bool
	// Reason is the end reason as in forge_leader_history, or Lost when the database could
	// not be updated.
	Reason string
}

// Lost is the reason of a term whose session broke or was no longer trusted.
const Lost = "lost"

// Options configure Elections. Durations are as in [cluster.leader_election].
type Options struct {
	NodeID          string
	Roles           []RoleConfig
	OpenSession     func(ctx context.Context) (Session, error)
	CheckInterval   time.Duration
	LeaseDuration   time.Duration
	RefreshInterval time.Duration
	// BackOff is how long the node leaves a role to others after it gave it up. Default:
	// three check intervals.
	BackOff time.Duration
	// OnChange is called after the leadership of this node or of another node has changed.
	// It must not block.
	OnChange func()
	// OnTerm, if set, is called in order after each term of this node has begun or ended.
	// It must neither block nor call the Elections.
	OnTerm  func(TermChange)
	Metrics *metrics.Metrics
	Logger  *slog.Logger
}

// Elections runs one elector per role over one session.
type Elections struct {
	opts     Options
	electors []*elector
	wake     waker

	mu          sync.Mutex
	activeTerms map[Role]*activeTerm
	burstUntil  time.Time
	sessionEnd  leaderstore.SessionEnd
	draining    bool

	loggedHolders map[string]bool // lock holders that were logged; used by Run only
}

// After a deputy has reported the end of a leader's session, the node tries the locks every
// burstInterval for burstDuration: the server frees the locks of an ended session one after
// the other.
const (
	burstInterval = time.Millisecond
	burstDuration = 25 * time.Millisecond
)

// reopenDelay is the average delay before a broken session is opened again.
const reopenDelay = 200 * time.Millisecond

// NewElections returns Elections that are not running yet.
func NewElections(opts Options) *Elections {
	es := &Elections{opts: opts, activeTerms: map[Role]*activeTerm{}, loggedHolders: map[string]bool{}}
	if es.opts.BackOff == 0 {
		es.opts.BackOff = 3 * opts.CheckInterval
	}
	if es.opts.OnChange == nil {
		es.opts.OnChange = func() {}
	}
	if es.opts.OnTerm == nil {
		es.opts.OnTerm = func(TermChange) {}
	}
	for _, config := range opts.Roles {
		es.electors = append(es.electors, newElector(es, config))
	}
	return es
}

// ElectNow makes the node try the locks at once, and repeatedly for burstDuration, because
// the session of a leader has ended.
func (es *Elections) ElectNow(seen leaderstore.SessionEnd) {
	es.mu.Lock()
	es.burstUntil, es.sessionEnd = time.Now().Add(burstDuration), seen
	es.mu.Unlock()
	es.wake.wake()
}

// SetDraining with true makes the node hand over its roles and be a candidate for none,
// until SetDraining(false).
func (es *Elections) SetDraining(draining bool) {
	es.mu.Lock()
	es.draining = draining
	es.mu.Unlock()
	es.wake.wake()
}

func (es *Elections) isDraining() bool {
	es.mu.Lock()
	defer es.mu.Unlock()
	return es.draining
}

func (es *Elections) inBurst(now time.Time) bool {
	es.mu.Lock()
	defer es.mu.Unlock()
	return now.Before(es.burstUntil)
}

func (es *Elections) lastSessionEnd() leaderstore.SessionEnd {
	es.mu.Lock()
	defer es.mu.Unlock()
	return es.sessionEnd
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
	l := &electionLoop{Elections: es, session: session}
	if err := l.run(ctx); err != nil {
		session.Close() // free the locks first
		l.deposeAll(err)
		return err
	}
	return nil
}

// termBegan records a new term of this node.
func (es *Elections) termBegan(role Role, t *activeTerm) {
	es.mu.Lock()
	es.activeTerms[role] = t
	es.opts.OnTerm(TermChange{Role: role, Term: t.fence.Term, Leads: true})
	es.mu.Unlock()
	es.opts.OnChange()
}

// termEnded records the end of a term of this node. It returns false if the end was
// recorded before. It is safe for concurrent use.
func (es *Elections) termEnded(role Role, fence leaderstore.Fence, reason string) bool {
	es.mu.Lock()
	current, leads := es.activeTerms[role]
	leads = leads && current.fence == fence
	if leads {
		delete(es.activeTerms, role)
		es.opts.OnTerm(TermChange{Role: role, Term: fence.Term, Reason: reason})
	}
	es.mu.Unlock()
	es.opts.OnChange()
	return leads
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
