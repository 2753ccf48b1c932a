package forge

import (
	"context"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// Callbacks are called on leadership changes of built-in and custom roles. They are called
// one at a time, in the order of the changes, and never delay an election. Each may be nil.
// Each must return soon after its context has ended.
type Callbacks struct {
	// Elected is called after this node has become the leader of the role.
	Elected func(ctx context.Context, role string, term int64)
	// Resigned is called after this node's term has ended. The reason is the end_reason of
	// forge_leader_history, or "lost" if the session broke or the trust window ended. The
	// database then records a reason of its own.
	Resigned func(ctx context.Context, role string, term int64, reason string)
	// LeaderChanged is called if another node leads the role, the same node leads it in
	// another term, or no node leads it (an empty node id). The first calls report the
	// existing leaders.
	LeaderChanged func(ctx context.Context, leader Leader)
}

// Leader is the leader of a role.
type Leader = leaderstore.Leader

// WithCallbacks sets the callbacks for leadership changes.
func WithCallbacks(callbacks Callbacks) Option {
	return func(o *options) { o.callbacks = callbacks }
}

const (
	// callbackGrace is how long callbacks may take after the node's last term has ended.
	callbackGrace = 2 * time.Second
	// leadersTimeout limits a read of the leaders.
	leadersTimeout = 5 * time.Second
)

// callbackLoop runs the callbacks on its own goroutine.
type callbackLoop struct {
	callbacks   Callbacks
	incarnation string // of this node
	leaders     func(ctx context.Context) ([]leaderstore.Leader, error)
	// interval is how often the leaders are read if there is no notification.
	interval time.Duration

	wake    chan struct{}
	mu      sync.Mutex
	changes []roles.TermChange
	// cancelRead ends the last read of the leaders; nil before the first one.
	cancelRead context.CancelFunc
	// lastLeaders are the leaders last reported to LeaderChanged. ownTerms are the newest
	// terms reported to Elected.
	lastLeaders map[string]leaderTerm
	ownTerms    map[string]int64
}

type leaderTerm struct {
	incarnation string
	term        int64
}

func newCallbackLoop(callbacks Callbacks, incarnation string, interval time.Duration, leaders func(context.Context) ([]leaderstore.Leader, error)) *callbackLoop {
	return &callbackLoop{
		callbacks: callbacks, incarnation: incarnation, leaders: leaders, interval: interval,
		wake: make(chan struct{}, 1), lastLeaders: map[string]leaderTerm{}, ownTerms: map[string]int64{},
	}
}

// addChange adds a change of a term of this node, and ends a read of the leaders: its callback
// must not wait for a server that does not answer. addChange never blocks.
func (c *callbackLoop) addChange(change roles.TermChange) {
	c.mu.Lock()
	c.changes = append(c.changes, change)
	if c.cancelRead != nil {
		c.cancelRead()
	}
	c.mu.Unlock()
	c.notify()
}

// notify wakes the callback loop.
func (c *callbackLoop) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run runs callbacks until ctx ends, and then those for the remaining changes.
func (c *callbackLoop) Run(ctx context.Context) error {
	var ticks <-chan time.Time
	if c.callbacks.LeaderChanged != nil {
		ticker := time.NewTicker(c.interval)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for ctx.Err() == nil {
		c.callOwnTerms(ctx)
		c.callLeaderChanged(ctx)
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-ticks:
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), callbackGrace)
	defer cancel()
	c.callOwnTerms(ending)
	return nil
}

func (c *callbackLoop) callOwnTerms(ctx context.Context) {
	c.mu.Lock()
	changes := c.changes
	c.changes = nil
	c.mu.Unlock()
	for _, change := range changes {
		role := string(change.Role)
		if change.Leads {
			c.ownTerms[role] = change.Term
		}
		switch {
		case change.Leads && c.callbacks.Elected != nil:
			c.callbacks.Elected(ctx, role, change.Term)
		case !change.Leads && c.callbacks.Resigned != nil:
			c.callbacks.Resigned(ctx, role, change.Term, change.Reason)
		}
	}
}

// callLeaderChanged reads the leaders and reports those that changed since the last report.
// A failed read is ignored until the next one.
func (c *callbackLoop) callLeaderChanged(ctx context.Context) {
	if c.callbacks.LeaderChanged == nil {
		return
	}
	found, err := c.readLeaders(ctx)
	if err != nil {
		return
	}
	for _, l := range found {
		if l.Incarnation == c.incarnation && l.Term > c.ownTerms[l.Role] {
			continue // Elected must be called for this term first
		}
		now := leaderTerm{l.Incarnation, l.Term}
		if !l.Leads() {
			l.NodeID, l.Incarnation, l.APIURL = "", "", ""
			now = leaderTerm{}
		}
		if before, known := c.lastLeaders[l.Role]; known && before == now || !known && now == (leaderTerm{}) {
			continue
		}
		c.lastLeaders[l.Role] = now
		c.callbacks.LeaderChanged(ctx, l)
	}
}

// readLeaders reads the leaders until leadersTimeout has passed or there is a change of a term of
// this node.
func (c *callbackLoop) readLeaders(ctx context.Context) ([]leaderstore.Leader, error) {
	reading, cancel := context.WithTimeout(ctx, leadersTimeout)
	defer cancel()
	c.mu.Lock()
	c.cancelRead = cancel
	if len(c.changes) > 0 {
		cancel()
	}
	c.mu.Unlock()
	return c.leaders(reading)
}
