package forge

import (
	"context"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// Callbacks tell a program about leadership, built-in roles and its own alike.
// They are called one after the other, in the order of what happened, and never
// hold up an election. Each may be left out, and each must return soon after its
// context has ended.
type Callbacks struct {
	// Elected: this node has begun to lead the role.
	Elected func(ctx context.Context, role string, term int64)
	// Resigned: this node no longer leads it. The reason is the end_reason of
	// forge_leader_history, or "lost" when the session broke or the trust in it
	// ended: the database then finds its own word.
	Resigned func(ctx context.Context, role string, term int64, reason string)
	// LeaderChanged: another node leads the role, the same one in another term,
	// or nobody (an empty node id). The first calls tell who leads already.
	LeaderChanged func(ctx context.Context, leader Leader)
}

// Leader is who leads a role.
type Leader = leaderstore.Leader

// WithCallbacks tells the program about elections.
func WithCallbacks(callbacks Callbacks) Option {
	return func(o *options) { o.callbacks = callbacks }
}

// callbackGrace is how long callbacks may take after the node's last role was
// given up.
const callbackGrace = 2 * time.Second

// herald calls the callbacks on a goroutine of its own.
type herald struct {
	callbacks   Callbacks
	incarnation string // this node's
	leaders     func(ctx context.Context) ([]leaderstore.Leader, error)
	// interval is how often it looks who leads when nothing tells it to.
	interval time.Duration

	wake chan struct{}
	mu   sync.Mutex
	news []roles.TermChange
	// known is who was said to lead, own the newest term of this node's own that it
	// was told to have been elected for.
	known map[string]leader
	own   map[string]int64
}

type leader struct {
	incarnation string
	term        int64
}

func newHerald(callbacks Callbacks, incarnation string, interval time.Duration, leaders func(context.Context) ([]leaderstore.Leader, error)) *herald {
	return &herald{
		callbacks: callbacks, incarnation: incarnation, leaders: leaders, interval: interval,
		wake: make(chan struct{}, 1), known: map[string]leader{}, own: map[string]int64{},
	}
}

// term notes a change of this node's own. It never blocks.
func (h *herald) term(change roles.TermChange) {
	h.mu.Lock()
	h.news = append(h.news, change)
	h.mu.Unlock()
	h.look()
}

// look wakes the herald.
func (h *herald) look() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Run calls until ctx ends, and then for what is still to be told.
func (h *herald) Run(ctx context.Context) error {
	var ticks <-chan time.Time
	if h.callbacks.LeaderChanged != nil {
		ticker := time.NewTicker(h.interval)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for ctx.Err() == nil {
		h.tellTerms(ctx)
		h.tellLeaders(ctx)
		select {
		case <-ctx.Done():
		case <-h.wake:
		case <-ticks:
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), callbackGrace)
	defer cancel()
	h.tellTerms(ending)
	return nil
}

func (h *herald) tellTerms(ctx context.Context) {
	h.mu.Lock()
	news := h.news
	h.news = nil
	h.mu.Unlock()
	for _, change := range news {
		role := string(change.Role)
		if change.Leads {
			h.own[role] = change.Term
		}
		switch {
		case change.Leads && h.callbacks.Elected != nil:
			h.callbacks.Elected(ctx, role, change.Term)
		case !change.Leads && h.callbacks.Resigned != nil:
			h.callbacks.Resigned(ctx, role, change.Term, change.Reason)
		}
	}
}

// tellLeaders compares who leads with who was said to. A database that does not
// answer changes nobody's mind: the next look will.
func (h *herald) tellLeaders(ctx context.Context) {
	if h.callbacks.LeaderChanged == nil {
		return
	}
	found, err := h.leaders(ctx)
	if err != nil {
		return
	}
	for _, l := range found {
		if l.Incarnation == h.incarnation && l.Term > h.own[l.Role] {
			continue // it stands in the database, and will be told as an election first
		}
		now := leader{l.Incarnation, l.Term}
		if !l.Leads() {
			l.NodeID, l.Incarnation, l.APIURL = "", "", ""
			now = leader{}
		}
		if before, told := h.known[l.Role]; told && before == now || !told && now == (leader{}) {
			continue
		}
		h.known[l.Role] = now
		h.callbacks.LeaderChanged(ctx, l)
	}
}
