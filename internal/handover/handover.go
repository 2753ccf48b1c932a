// Package handover moves roles between nodes on request: a leader steps down or
// hands over to a named node, or a node is drained.
//
// The functions that request do not wait for the successor. A request is a row, and
// the leader is notified of it; callers that need the outcome follow the
// leadership.
package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
	"github.com/forge-scheduler/forge/leaderstore"
)

// silentAfter is the time without a heartbeat after which a node is no candidate.
const silentAfter = 10 * time.Second

// RefusedError says why a request was rejected. Missing is set if something that
// was named does not exist, and not set if it exists but is not suitable now.
type RefusedError struct {
	Missing bool
	Why     string
}

func (r *RefusedError) Error() string { return r.Why }

func missingErrorf(format string, args ...any) error {
	return &RefusedError{Missing: true, Why: fmt.Sprintf(format, args...)}
}

func refusedErrorf(format string, args ...any) error {
	return &RefusedError{Why: fmt.Sprintf(format, args...)}
}

// Ops are the hand-overs that operators request.
type Ops struct {
	db        postgres.DB
	subscribe func() (changes <-chan struct{}, cancel func())
}

// New returns the operations on a database. subscribe notifies of changes of leadership;
// only Drill needs it.
func New(db postgres.DB, subscribe func() (changes <-chan struct{}, cancel func())) *Ops {
	return &Ops{db, subscribe}
}

// Leader returns the leader of a role, or a [RefusedError] if there is none.
func Leader(ctx context.Context, db postgres.DB, role string) (leaderstore.Leader, error) {
	leaders, err := leaderstore.New(db).Leaders(ctx)
	if err != nil {
		return leaderstore.Leader{}, err
	}
	known := make([]string, len(leaders))
	for i, leader := range leaders {
		if known[i] = leader.Role; leader.Role != role {
			continue
		}
		if !leader.Leads() {
			return leaderstore.Leader{}, refusedErrorf("nobody leads %s now", role)
		}
		return leader, nil
	}
	return leaderstore.Leader{}, missingErrorf("no role %q; want %s", role, strings.Join(known, ", "))
}

// Check checks that the target, or any other node if there is none, can lead the
// leader's role, according to the rows of the nodes. It returns a [RefusedError] if
// not.
func Check(ctx context.Context, db postgres.DB, leader leaderstore.Leader, target string) error {
	nodes, err := nodestore.New(db).List(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(nodes, func(n nodestore.Node) bool { return n.Incarnation == leader.Incarnation }) {
		return nil // a process of forge run: its standbys are not listed
	}
	if target == "" {
		if len(Candidates(nodes, leader)) == 0 {
			return refusedErrorf("no other node can lead %s; see forge node list -o wide", leader.Role)
		}
		return nil
	}
	for _, node := range nodes {
		if node.NodeID != target {
			continue
		}
		if why := ineligibility(node, leader.Role); why != "" {
			return refusedErrorf("%s cannot lead %s: %s", target, leader.Role, why)
		}
		return nil
	}
	return missingErrorf("no node %q; see forge node list", target)
}

// Candidates returns the ids of the nodes that could take over a role from its
// leader.
func Candidates(nodes []nodestore.Node, leader leaderstore.Leader) []string {
	var ids []string
	for _, node := range nodes {
		if node.NodeID != leader.NodeID && ineligibility(node, leader.Role) == "" {
			ids = append(ids, node.NodeID)
		}
	}
	return ids
}

// ineligibility returns why a node is no candidate for a role, or "".
func ineligibility(node nodestore.Node, role string) string {
	switch silent := node.Now.Sub(node.LastHeartbeatAt); {
	case node.State != nodestore.Active || !node.FencedAt.IsZero():
		return "it is " + node.State
	case !slices.Contains(node.Roles, role):
		return "its node.roles do not list it"
	case silent > silentAfter:
		return fmt.Sprintf("nothing was heard from it for %v", silent.Round(time.Second))
	}
	return ""
}

// HandOver requests that a role's leader hand over to the node target, or to any
// other node if target is empty. It returns the leader, and false if target is the
// leader, so that no request is needed. By is who requests it.
func (o *Ops) HandOver(ctx context.Context, role, target, by string) (old leaderstore.Leader, requested bool, err error) {
	if old, err = Leader(ctx, o.db, role); err != nil || old.NodeID == target {
		return old, false, err
	}
	if err := Check(ctx, o.db, old, target); err != nil {
		return old, false, err
	}
	err = pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error { return insertRequest(ctx, tx, old, target, by) })
	return old, err == nil, err
}

// insertRequest inserts a request for the leader's term. That term may just have
// been handed over, which is fine.
func insertRequest(ctx context.Context, tx pgx.Tx, leader leaderstore.Leader, target, by string) error {
	err := leaderstore.New(tx).Request(ctx, leader.Role, leader.Term, target)
	if errors.Is(err, leaderstore.ErrTermOver) {
		return nil
	}
	if err != nil {
		return err
	}
	data := map[string]any{"by": by}
	if target != "" {
		data["to"] = target
	}
	return eventstore.New(tx).Append(ctx, eventstore.Event{
		Type: eventstore.HandOverAsked, NodeID: leader.NodeID, Role: leader.Role, Term: leader.Term,
	}, data)
}

// Drain requests hand-overs of the roles of a node and stops it from taking jobs,
// in one transaction. It returns the leaders that have to hand over, or a
// [RefusedError].
func (o *Ops) Drain(ctx context.Context, id, by string) ([]leaderstore.Leader, error) {
	node, err := liveNode(ctx, o.db, id)
	if err != nil {
		return nil, err
	}
	led, err := ledBy(ctx, o.db, node.Incarnation)
	if err != nil {
		return nil, err
	}
	for _, leader := range led {
		if err := Check(ctx, o.db, leader, ""); err != nil {
			return nil, err
		}
	}
	err = pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error {
		for _, leader := range led {
			if err := insertRequest(ctx, tx, leader, "", by); err != nil {
				return err
			}
		}
		return setState(ctx, tx, node, nodestore.Draining, by)
	})
	return led, err
}

// Undrain lets a drained node lead and take jobs again, or returns a
// [RefusedError].
func (o *Ops) Undrain(ctx context.Context, id, by string) error {
	node, err := liveNode(ctx, o.db, id)
	if err != nil {
		return err
	}
	return setState(ctx, o.db, node, nodestore.Active, by)
}

// setState appends an event only if the state changed.
func setState(ctx context.Context, db postgres.DB, node nodestore.Node, state, by string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := nodestore.New(tx).SetState(ctx, node.NodeID, node.Incarnation, state); err != nil || node.State == state {
			return err
		}
		event := eventstore.Event{Type: eventstore.NodeUndrained, NodeID: node.NodeID}
		if state == nodestore.Draining {
			event.Type = eventstore.NodeDrained
		}
		return eventstore.New(tx).Append(ctx, event, map[string]any{"by": by})
	})
}

// liveNode returns a node that can be drained and undrained.
func liveNode(ctx context.Context, db postgres.DB, id string) (nodestore.Node, error) {
	node, err := nodestore.New(db).Get(ctx, id)
	switch {
	case errors.Is(err, nodestore.ErrNotFound):
		return node, missingErrorf("no node %q; see forge node list", id)
	case err != nil:
		return node, err
	case node.State == nodestore.Left || node.State == nodestore.Dead || !node.FencedAt.IsZero():
		return node, refusedErrorf("node %s is %s", id, node.State)
	}
	return node, nil
}

func ledBy(ctx context.Context, db postgres.DB, incarnation string) ([]leaderstore.Leader, error) {
	leaders, err := leaderstore.New(db).Leaders(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(leaders, func(l leaderstore.Leader) bool { return !l.Leads() || l.Incarnation != incarnation }), nil
}
