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
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/internal/urgent"
	"github.com/forge-scheduler/forge/leaderstore"
)

// Duty is the work of a role's leader. It runs while its term lasts and must
// return soon after ctx ends: the role is handed over then, and after a lease in
// any case. A return before that gives the role up, and so does a lease without
// a sign of progress: a Duty calls progress.Report, or waits with
// progress.Await and progress.Sleep.
type Duty func(ctx context.Context, fence leaderstore.Fence) error

// Ballot is how locks are won and given back.
type Ballot interface {
	TryLocks(ctx context.Context, locks []leaderstore.Lock) ([]string, error)
	Unlock(ctx context.Context, lock leaderstore.Lock) error
	Relax(ctx context.Context) error
}

// Terms is how a won lock becomes a term, is renewed and ends.
type Terms interface {
	Mint(ctx context.Context, role string, seen leaderstore.End) (leaderstore.Minted, error)
	Renew(ctx context.Context, held []leaderstore.Held) ([]leaderstore.Renewed, error)
	Resign(ctx context.Context, lock leaderstore.Lock, term int64, reason string) error
	Vacate(ctx context.Context, lock leaderstore.Lock, term int64, reason string) error
}

// Session is the node's one election session.
type Session interface {
	Ballot
	Terms
	Wait(ctx context.Context) (notified bool, err error)
	Close()
}

// OpenSession opens the session that elects by lease alone, or the one that
// elects by locks.
func OpenSession(ctx context.Context, cfg leaderstore.SessionConfig, roles []string, byLease bool) (Session, error) {
	if byLease {
		return opened(leaderstore.OpenLease(ctx, cfg, roles))
	}
	return opened(leaderstore.OpenSession(ctx, cfg, roles))
}

// opened keeps a nil pointer from becoming a session that is not nil.
func opened[S Session](session S, err error) (Session, error) {
	if err != nil {
		return nil, err
	}
	return session, nil
}

// Contest is one role that the node stands for.
type Contest struct {
	Role   Role
	LockID int64
	// BySchema is leaderstore.Lock's.
	BySchema bool
	Duty     Duty
	// Takeover, if set, waits before the Duty of a term begins; false: the term ended
	// meanwhile.
	Takeover func(ctx context.Context, fence leaderstore.Fence) bool
	// Patience is how long the work may take when it is asked to stop; the lease
	// is renewed meanwhile. Default: one lease.
	Patience time.Duration
	// Trusted, if set, is told when each mint or renewal that was confirmed had
	// been sent: the lease runs from then on. It must not block.
	Trusted func(sent time.Time)
}

// TermChange is a term of this node's own that began or ended.
type TermChange struct {
	Role  Role
	Term  int64
	Leads bool
	// Reason is why it ended, as forge_leader_history has it; Lost when nobody
	// could tell the database.
	Reason string
}

// Lost is the reason of a term whose session broke or was no longer trusted.
const Lost = "lost"

// Options configure a Campaign. Durations are as in [cluster.leader_election].
type Options struct {
	NodeID          string
	Contests        []Contest
	Open            func(ctx context.Context) (Session, error)
	CheckInterval   time.Duration
	LeaseDuration   time.Duration
	RefreshInterval time.Duration
	// StandBack is how long the node leaves a role that it gave up to others.
	// Default: three check intervals.
	StandBack time.Duration
	// OnChange is called after this node's leadership or another's changed; it
	// must not block.
	OnChange func()
	// OnTerm, if set, is called after a term of this node's own has begun or
	// ended, in order; it must neither block nor call the Campaign.
	OnTerm  func(TermChange)
	Metrics *metrics.Metrics
	Logger  *slog.Logger
}

// Campaign runs one elector per role over one session.
type Campaign struct {
	opts     Options
	electors []*elector
	wake     waker

	mu         sync.Mutex
	leads      map[Role]*lead
	hurryUntil time.Time
	seen       leaderstore.End
	abstains   bool

	obstacles map[string]bool // holders of locks that were told of; only Run's
}

// A deputy's alarm makes the node try the locks this often for this long: the
// server frees the locks of a dead session one after the other.
const (
	hurryEvery = time.Millisecond
	hurryFor   = 25 * time.Millisecond
)

// reopenDelay is how long a node waits before it opens a broken session again.
const reopenDelay = 200 * time.Millisecond

// New returns a Campaign that has not started.
func New(opts Options) *Campaign {
	c := &Campaign{opts: opts, leads: map[Role]*lead{}, obstacles: map[string]bool{}}
	if c.opts.StandBack == 0 {
		c.opts.StandBack = 3 * opts.CheckInterval
	}
	if c.opts.OnChange == nil {
		c.opts.OnChange = func() {}
	}
	if c.opts.OnTerm == nil {
		c.opts.OnTerm = func(TermChange) {}
	}
	for _, contest := range opts.Contests {
		c.electors = append(c.electors, newElector(c, contest))
	}
	return c
}

// Hurry makes the node try the locks at once and for a short while again and
// again: a leader's session was seen to end.
func (c *Campaign) Hurry(seen leaderstore.End) {
	c.mu.Lock()
	c.hurryUntil, c.seen = time.Now().Add(hurryFor), seen
	c.mu.Unlock()
	c.wake.poke()
}

// Abstain makes the node hand over what it leads and stand for nothing, until it
// is told otherwise.
func (c *Campaign) Abstain(abstain bool) {
	c.mu.Lock()
	c.abstains = abstain
	c.mu.Unlock()
	c.wake.poke()
}

func (c *Campaign) abstaining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.abstains
}

func (c *Campaign) hurries(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Before(c.hurryUntil)
}

func (c *Campaign) lastSeen() leaderstore.End {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// Run campaigns until ctx ends, on a thread of its own, so that renewals do not wait
// for work. It then stops the work of every role that it leads, waits for it, and
// resigns. An error names work that would not stop within a lease.
func (c *Campaign) Run(ctx context.Context) error {
	return urgent.Run(func() error { return c.run(ctx) })
}

func (c *Campaign) run(ctx context.Context) error {
	for reported := false; ctx.Err() == nil; {
		err := c.campaign(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		c.opts.OnChange()
		if errors.Is(err, leaderstore.ErrUnfit) {
			return errors.Join(err, c.awaitAll())
		}
		if !reported || !errors.Is(err, errOpen) {
			c.opts.Logger.WarnContext(ctx, "election session lost, opening another", "error", err)
		}
		reported = errors.Is(err, errOpen)
		progress.Sleep(ctx, reopenDelay/2+rand.N(reopenDelay))
	}
	return c.awaitAll()
}

// awaitAll waits for the work of terms that ended, as long as it may take.
func (c *Campaign) awaitAll() error {
	var errs []error
	for _, e := range c.electors {
		if !e.await() {
			errs = append(errs, fmt.Errorf("the work of %s does not stop", e.Role))
		}
	}
	return errors.Join(errs...)
}

// errOpen marks failures to connect, which are reported once, not each time.
var errOpen = errors.New("no election session")

// campaign opens a session and leads on it until it breaks or ctx ends.
func (c *Campaign) campaign(ctx context.Context) error {
	session, err := c.opts.Open(ctx)
	if err != nil {
		return errors.Join(errOpen, err)
	}
	defer session.Close()
	c.opts.OnChange() // nobody has told this session of what came before it
	b := &bout{Campaign: c, session: session}
	if err := b.run(ctx); err != nil {
		session.Close() // free the locks first
		b.deposeAll(err)
		return err
	}
	return nil
}

// began notes a term of this node's own.
func (c *Campaign) began(role Role, l *lead) {
	c.mu.Lock()
	c.leads[role] = l
	c.opts.OnTerm(TermChange{Role: role, Term: l.fence.Term, Leads: true})
	c.mu.Unlock()
	c.opts.OnChange()
}

// ended notes that a term of this node's own is over; false: that was known. It is
// safe from any goroutine.
func (c *Campaign) ended(role Role, fence leaderstore.Fence, reason string) bool {
	c.mu.Lock()
	current, leads := c.leads[role]
	leads = leads && current.fence == fence
	if leads {
		delete(c.leads, role)
		c.opts.OnTerm(TermChange{Role: role, Term: fence.Term, Reason: reason})
	}
	c.mu.Unlock()
	c.opts.OnChange()
	return leads
}

// waker interrupts a wait from another goroutine, also one that has not begun.
type waker struct {
	mu     sync.Mutex
	cancel context.CancelFunc
	woken  bool
}

func (w *waker) poke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = true
	if w.cancel != nil {
		w.cancel()
	}
}

// context returns a context that ends at deadline, with parent or at a poke.
func (w *waker) context(parent context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(parent, deadline)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel = cancel
	if w.woken {
		cancel()
	}
	w.woken = false
	return ctx, cancel
}
