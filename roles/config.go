package roles

import (
	"context"
	"log/slog"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/tracing"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
)

// WorkFunc is work of a leader. It runs during one term and must return soon after ctx
// ends: the role is handed over once it has returned, and one StopTimeout after ctx ended at
// the latest.
type WorkFunc func(ctx context.Context, fence leaderstore.Fence) error

// LeaderFunc is the WorkFunc of a role with the watchdog of the term, which Watched or
// Unwatched adds. The role is given up when LeaderFunc returns before the end of ctx, or
// when a part that it began on the watchdog reports no progress for one lease.
type LeaderFunc func(ctx context.Context, fence leaderstore.Fence, watch *watchdog.Watchdog) error

// Watched returns the LeaderFunc of work that reports its progress with the functions of
// package watchdog, which find the watchdog in its context.
func Watched(work WorkFunc) LeaderFunc {
	return func(ctx context.Context, fence leaderstore.Fence, watch *watchdog.Watchdog) error {
		return work(watch.Context(ctx, "work"), fence)
	}
}

// Unwatched returns the LeaderFunc of work that reports no progress.
func Unwatched(work WorkFunc) LeaderFunc {
	return func(ctx context.Context, fence leaderstore.Fence, _ *watchdog.Watchdog) error {
		return work(ctx, fence)
	}
}

// RoleConfig configures one role in which the node is a candidate.
type RoleConfig struct {
	Role   Role
	LockID int64
	// BySchema is Lock.BySchema of package leaderstore.
	BySchema bool
	Lead     LeaderFunc
	// TakeoverDelay is how long work that no transaction fences waits after the leadership
	// changed, unless all predecessors stopped in order: the lock of an ended session is
	// free before the process of that session notices its end.
	TakeoverDelay time.Duration
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
	// TakeoverWait returns how long the work of a term must still wait for that of its
	// predecessors. It is required for roles with a TakeoverDelay, and is the method of
	// leaderstore.Store.
	TakeoverWait func(ctx context.Context, fence leaderstore.Fence, delay time.Duration) (time.Duration, error)
	// OnChange is called after the leadership of this node or of another node has changed.
	// It must not block.
	OnChange func()
	// OnTerm, if set, is called in order after each term of this node has begun or ended.
	// It must neither block nor call the Elections.
	OnTerm  func(TermChange)
	Metrics *metrics.Metrics
	// Tracer creates a span for each election that the node wins; nil means none.
	Tracer *tracing.Tracer
	Logger *slog.Logger
}

// Session is the node's only election session: it locks roles, and acquires, renews and
// resigns their terms.
type Session interface {
	TryLocks(ctx context.Context, locks []leaderstore.Lock) ([]string, error)
	Unlock(ctx context.Context, lock leaderstore.Lock) error
	ResetIdleTimeout(ctx context.Context) error
	AcquireTerm(ctx context.Context, role string, seen leaderstore.SessionEnd) (leaderstore.AcquiredTerm, error)
	Renew(ctx context.Context, held []leaderstore.Held) ([]leaderstore.Renewed, error)
	Resign(ctx context.Context, lock leaderstore.Lock, term int64, reason string) error
	ForceResign(ctx context.Context, lock leaderstore.Lock, term int64, reason string) error
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

// Leases are the Lease objects of Kubernetes that a node needs to lead.
type Leases interface {
	// Run competes for the Leases until ctx ends, and then gives up those that are held.
	Run(ctx context.Context)
	// Session returns a session that tries only the locks of roles whose Lease the node holds.
	// The store is that of the session's database.
	Session(session Session, store *leaderstore.Store) Session
	// Objects reads the Leases.
	Objects(ctx context.Context) []LeaseObject
}

// LeaseObject is a role's Lease.
type LeaseObject struct {
	Role string
	// Name is NAMESPACE/NAME.
	Name string
	// Holder is the node that the Lease names; may be empty.
	Holder string
	// Database is the DatabaseID of the holder's cluster; may be empty.
	Database string
	// Err says why the Lease cannot be read.
	Err error
}
