package forge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
)

const (
	// leaderlessFor is when a vacant role may make the cluster degraded: a little
	// later than forge_judge_health says, which decides.
	leaderlessFor = 6 * time.Second
	// vigilInterval is how often a node without deputies looks around.
	vigilInterval = 15 * time.Second
)

// vigil has the cluster's health judged when who leads or who is there has
// changed. Most of that is judged in the transaction that changes it; what nobody
// writes, that a role stays vacant, is seen when a node looks around anyway.
type vigil struct {
	judge func(ctx context.Context) (judged bool, err error)
	again func() // look around once more
	// pending receives when time alone may change the cluster's health.
	pending chan struct{}

	mu   sync.Mutex
	seen string
}

func (n *Node) newVigil() *vigil {
	return &vigil{
		judge: func(ctx context.Context) (bool, error) { return eventstore.JudgeHealth(ctx, n.pool) },
		again: n.lookAgain,

		pending: make(chan struct{}, 1),
	}
}

// run looks around again some time after a look that may be out of date by then, until
// ctx ends.
func (v *vigil) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-v.pending:
		}
		if !progress.Sleep(ctx, leaderlessFor) {
			return nil
		}
		v.again()
	}
}

// look takes what a look around has found.
func (v *vigil) look(ctx context.Context, leaders []leaderstore.Leader, nodes []nodestore.Node) error {
	found, pending := outline(leaders, nodes)
	if pending {
		select {
		case v.pending <- struct{}{}:
		default: // it will be looked around again anyway
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if found == v.seen {
		return nil
	}
	judged, err := v.judge(ctx)
	if err == nil && judged {
		v.seen = found
	}
	return err
}

// outline is what the cluster's health depends on, and whether time alone may
// change it.
func outline(leaders []leaderstore.Leader, nodes []nodestore.Node) (found string, pending bool) {
	var lines []string
	var oldest time.Time
	for _, node := range nodes {
		lines = append(lines, "node "+node.NodeID+" "+node.Incarnation+" "+node.State)
		if node.Present() && (oldest.IsZero() || node.StartedAt.Before(oldest)) {
			oldest = node.StartedAt
		}
	}
	for _, leader := range leaders {
		since := leader.LeaseUntil
		if oldest.After(since) {
			since = oldest
		}
		long := !leader.Leads() && leader.Now.Sub(since) >= leaderlessFor
		pending = pending || !leader.Leads() && !long
		lines = append(lines, fmt.Sprintf("role %s %v %v", leader.Role, leader.Leads(), long))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), pending
}

// lookAgain makes the node look around soon.
func (n *Node) lookAgain() {
	if n.deputy != nil {
		n.deputy.Look()
		return
	}
	n.changes.announce()
}

// keepVigil looks around where there are no deputies, who do so anyway.
func (n *Node) keepVigil(ctx context.Context) error {
	changed, unsubscribe := n.changes.Subscribe()
	defer unsubscribe()
	ticker := time.NewTicker(vigilInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if _, err := n.lookAround(ctx); err != nil && ctx.Err() == nil {
			n.logger.DebugContext(ctx, "could not look around", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-ticker.C:
		}
	}
	return nil
}
