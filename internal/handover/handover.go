// Package handover moves roles from node to node because somebody asks for it: a
// leader steps down or hands over to a named node, a node is drained.
//
// Nothing here waits for the successor. The request is a row that the leader is
// told of; whoever wants to see the outcome follows the leadership.
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
	"github.com/forge-scheduler/forge/leaderstore"
)

// silentAfter is when a node without a heartbeat is no candidate.
const silentAfter = 10 * time.Second

// RefusedError says why nothing was asked for. Missing is set where what was named does
// not exist, and not set where it cannot do what is wanted now.
type RefusedError struct {
	Missing bool
	Why     string
}

func (r *RefusedError) Error() string { return r.Why }

func missing(format string, args ...any) error {
	return &RefusedError{Missing: true, Why: fmt.Sprintf(format, args...)}
}

func refuse(format string, args ...any) error {
	return &RefusedError{Why: fmt.Sprintf(format, args...)}
}

// DB is what hand-overs are asked for through: a pool or a connection.
type DB interface {
	leaderstore.Queryer
	nodestore.Queryer
	nodestore.RowQueryer
	nodestore.Beginner
	leaderstore.Execer
}

// Leader returns who leads a role, or a [RefusedError] when nobody does.
func Leader(ctx context.Context, db leaderstore.Queryer, role string) (leaderstore.Leader, error) {
	leaders, err := leaderstore.Leaders(ctx, db)
	if err != nil {
		return leaderstore.Leader{}, err
	}
	known := make([]string, len(leaders))
	for i, leader := range leaders {
		if known[i] = leader.Role; leader.Role != role {
			continue
		}
		if !leader.Leads() {
			return leaderstore.Leader{}, refuse("nobody leads %s now", role)
		}
		return leader, nil
	}
	return leaderstore.Leader{}, missing("no role %q; want %s", role, strings.Join(known, ", "))
}

// Check makes sure that the target, or any other node if there is none, can stand
// for the leader's role, as far as the nodes tell. It returns a [RefusedError] if not.
func Check(ctx context.Context, db nodestore.Queryer, leader leaderstore.Leader, target string) error {
	nodes, err := nodestore.Observe(ctx, db)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(nodes, func(n nodestore.Node) bool { return n.Incarnation == leader.Incarnation }) {
		return nil // a process of forge run: nobody lists those that stand by
	}
	if target == "" {
		if len(Candidates(nodes, leader)) == 0 {
			return refuse("no other node can lead %s; see forge node list -o wide", leader.Role)
		}
		return nil
	}
	for _, node := range nodes {
		if node.NodeID != target {
			continue
		}
		if why := cannotStand(node, leader.Role); why != "" {
			return refuse("%s cannot lead %s: %s", target, leader.Role, why)
		}
		return nil
	}
	return missing("no node %q; see forge node list", target)
}

// Candidates are the ids of the nodes that could take a role over from its leader.
func Candidates(nodes []nodestore.Node, leader leaderstore.Leader) []string {
	var ids []string
	for _, node := range nodes {
		if node.NodeID != leader.NodeID && cannotStand(node, leader.Role) == "" {
			ids = append(ids, node.NodeID)
		}
	}
	return ids
}

// cannotStand says why a node is no candidate for a role, or nothing.
func cannotStand(node nodestore.Node, role string) string {
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

// Ask asks a role's leader to hand over: to the node target, or to any other when
// target is empty. It returns the leader that is asked, and false when target
// leads already, so that there is nothing to ask for. By names who wants it.
func Ask(ctx context.Context, db DB, role, target, by string) (old leaderstore.Leader, asked bool, err error) {
	if old, err = Leader(ctx, db, role); err != nil || old.NodeID == target {
		return old, false, err
	}
	if err := Check(ctx, db, old, target); err != nil {
		return old, false, err
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return request(ctx, tx, old, target, by) })
	return old, err == nil, err
}

// request is for a term that may just have been handed over, which is as good.
func request(ctx context.Context, tx pgx.Tx, leader leaderstore.Leader, target, by string) error {
	err := leaderstore.Request(ctx, tx, leader.Role, leader.Term, target)
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
	return eventstore.Append(ctx, tx, eventstore.Event{
		Type: eventstore.HandOverAsked, NodeID: leader.NodeID, Role: leader.Role, Term: leader.Term,
	}, data)
}

// Drain asks for the roles of a node and closes it to jobs in one transaction, so
// that neither happens alone. It returns the leaders that are asked, or a [RefusedError].
func Drain(ctx context.Context, db DB, id, by string) ([]leaderstore.Leader, error) {
	node, err := liveNode(ctx, db, id)
	if err != nil {
		return nil, err
	}
	led, err := ledBy(ctx, db, node.Incarnation)
	if err != nil {
		return nil, err
	}
	for _, leader := range led {
		if err := Check(ctx, db, leader, ""); err != nil {
			return nil, err
		}
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		for _, leader := range led {
			if err := request(ctx, tx, leader, "", by); err != nil {
				return err
			}
		}
		return turn(ctx, tx, node, nodestore.Draining, by)
	})
	return led, err
}

// Undrain lets a drained node stand and work again, or returns a [RefusedError].
func Undrain(ctx context.Context, db DB, id, by string) error {
	node, err := liveNode(ctx, db, id)
	if err != nil {
		return err
	}
	return turn(ctx, db, node, nodestore.Active, by)
}

// turn writes into the diary only what changed something.
func turn(ctx context.Context, db nodestore.Beginner, node nodestore.Node, state, by string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := nodestore.SetState(ctx, tx, node.NodeID, node.Incarnation, state); err != nil || node.State == state {
			return err
		}
		event := eventstore.Event{Type: eventstore.NodeUndrained, NodeID: node.NodeID}
		if state == nodestore.Draining {
			event.Type = eventstore.NodeDrained
		}
		return eventstore.Append(ctx, tx, event, map[string]any{"by": by})
	})
}

// liveNode returns a node that can be drained and undrained.
func liveNode(ctx context.Context, db nodestore.RowQueryer, id string) (nodestore.Node, error) {
	node, err := nodestore.Get(ctx, db, id)
	switch {
	case errors.Is(err, nodestore.ErrNotFound):
		return node, missing("no node %q; see forge node list", id)
	case err != nil:
		return node, err
	case node.State == nodestore.Left || node.State == nodestore.Dead || !node.FencedAt.IsZero():
		return node, refuse("node %s is %s", id, node.State)
	}
	return node, nil
}

func ledBy(ctx context.Context, db leaderstore.Queryer, incarnation string) ([]leaderstore.Leader, error) {
	leaders, err := leaderstore.Leaders(ctx, db)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(leaders, func(l leaderstore.Leader) bool { return !l.Leads() || l.Incarnation != incarnation }), nil
}
