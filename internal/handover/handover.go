// Package handover moves roles between nodes on request: a leader steps down or
// hands over to a named node, or a node is drained.
//
// HandOver and Drain only request: a request is a row, and the leader is notified of it.
// RequestAndWait, Drill and AwaitAll also wait for the successors.
package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forge-scheduler/forge/internal/config"
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
// only the operations that wait need it.
func New(db postgres.DB, subscribe func() (changes <-chan struct{}, cancel func())) *Ops {
	return &Ops{db, subscribe}
}

// leader returns the leader of a role, or a [RefusedError] if there is none.
func (o *Ops) leader(ctx context.Context, role string) (leaderstore.Leader, error) {
	leaders, err := leaderstore.New(o.db).Leaders(ctx)
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
	return leaderstore.Leader{}, missingErrorf("no role %q%s; want %s", role, meant(role, known), strings.Join(known, ", "))
}

// check checks that the target, or any other node if there is none, can lead the
// leader's role, according to the rows of the nodes. It returns a [RefusedError] if
// not.
func (o *Ops) check(ctx context.Context, leader leaderstore.Leader, target string) error {
	nodes, err := nodestore.New(o.db).List(ctx)
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
	return missingErrorf("no node %q%s; see forge node list", target, meant(target, idsOf(nodes)))
}

// meant names the one of the known names that was probably meant, as a part of a message.
func meant(name string, known []string) string {
	if near := config.Nearest(name, known); near != "" {
		return fmt.Sprintf(" (did you mean %s?)", near)
	}
	return ""
}

func idsOf(nodes []nodestore.Node) []string {
	ids := make([]string, len(nodes))
	for i, node := range nodes {
		ids[i] = node.NodeID
	}
	return ids
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
	if old, err = o.leader(ctx, role); err != nil || old.NodeID == target {
		return old, false, err
	}
	if err := o.check(ctx, old, target); err != nil {
		return old, false, err
	}
	err = o.inTx(ctx, func(tx *Ops) error { return tx.insertRequest(ctx, old, target, by) })
	return old, err == nil, err
}

// inTx runs work in a transaction.
func (o *Ops) inTx(ctx context.Context, work func(tx *Ops) error) error {
	return pgx.BeginFunc(ctx, o.db, func(tx pgx.Tx) error { return work(New(tx, o.subscribe)) })
}

// insertRequest inserts a request for the leader's term. That term may just have
// been handed over, which is fine.
func (o *Ops) insertRequest(ctx context.Context, leader leaderstore.Leader, target, by string) error {
	err := leaderstore.New(o.db).Request(ctx, leader.Role, leader.Term, target)
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
	return eventstore.New(o.db).Append(ctx, eventstore.Event{
		Type: eventstore.HandOverAsked, NodeID: leader.NodeID, Role: leader.Role, Term: leader.Term,
	}, data)
}

// Drain requests hand-overs of the roles of a node and stops it from taking jobs,
// in one transaction. It returns the leaders that have to hand over, or a
// [RefusedError].
func (o *Ops) Drain(ctx context.Context, id, by string) ([]leaderstore.Leader, error) {
	node, err := o.liveNode(ctx, id)
	if err != nil {
		return nil, err
	}
	led, err := o.ledBy(ctx, node.Incarnation)
	if err != nil {
		return nil, err
	}
	for _, leader := range led {
		if err := o.check(ctx, leader, ""); err != nil {
			return nil, err
		}
	}
	err = o.inTx(ctx, func(tx *Ops) error {
		for _, leader := range led {
			if err := tx.insertRequest(ctx, leader, "", by); err != nil {
				return err
			}
		}
		return tx.setState(ctx, node, nodestore.Draining, by)
	})
	return led, err
}

// Undrain lets a drained node lead and take jobs again, or returns a
// [RefusedError].
func (o *Ops) Undrain(ctx context.Context, id, by string) error {
	node, err := o.liveNode(ctx, id)
	if err != nil {
		return err
	}
	return o.inTx(ctx, func(tx *Ops) error { return tx.setState(ctx, node, nodestore.Active, by) })
}

// setState appends an event only if the state changed.
func (o *Ops) setState(ctx context.Context, node nodestore.Node, state, by string) error {
	if err := nodestore.New(o.db).SetState(ctx, node.NodeID, node.Incarnation, state); err != nil || node.State == state {
		return err
	}
	event := eventstore.Event{Type: eventstore.NodeUndrained, NodeID: node.NodeID}
	if state == nodestore.Draining {
		event.Type = eventstore.NodeDrained
	}
	return eventstore.New(o.db).Append(ctx, event, map[string]any{"by": by})
}

// liveNode returns a node that can be drained and undrained.
func (o *Ops) liveNode(ctx context.Context, id string) (nodestore.Node, error) {
	node, err := nodestore.New(o.db).Get(ctx, id)
	switch {
	case errors.Is(err, nodestore.ErrNotFound):
		nodes, err := nodestore.New(o.db).List(ctx)
		if err != nil {
			return node, err
		}
		return node, missingErrorf("no node %q%s; see forge node list", id, meant(id, idsOf(nodes)))
	case err != nil:
		return node, err
	case node.State == nodestore.Left || node.State == nodestore.Dead || !node.FencedAt.IsZero():
		return node, refusedErrorf("node %s is %s", id, node.State)
	}
	return node, nil
}

func (o *Ops) ledBy(ctx context.Context, incarnation string) ([]leaderstore.Leader, error) {
	leaders, err := leaderstore.New(o.db).Leaders(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(leaders, func(l leaderstore.Leader) bool { return !l.Leads() || l.Incarnation != incarnation }), nil
}
