package forge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// ErrNotLeader means that this node does not lead the role now.
var ErrNotLeader = roles.ErrNotLeader

// Leads returns the current term of a built-in or custom role if this node leads it. It
// uses local knowledge only. False is certain. True holds within the trust window, until
// 0.8 leases after the last confirmed renewal was sent; only Term.Check shows whether it
// still holds at the time of a write. Leads is false during the takeover delay of a role,
// once the hand-over of the role has begun, and for an unknown role.
func (n *Node) Leads(role string) (Term, bool) {
	fence, leads := n.elections.Leads(roles.Role(role))
	if !leads {
		return Term{}, false
	}
	return n.term(fence, nil), true
}

// RunIfLeader calls work if this node leads the role as Leads reports, and returns the
// error of work. Otherwise it returns ErrNotLeader without calling work.
//
// The context of work ends with ctx and with the term; the cause is then ErrDeposed. The
// work must return soon after that. Until it has returned, for one lease at most, the role
// is not handed over in order, and this node is no candidate for the role. Work that writes
// to the database calls Term.Check first in each of its transactions, so that none of them
// can commit after the end of the term.
//
// An error that is neither ErrNotLeader nor the error of work means that the role is
// unknown.
func (n *Node) RunIfLeader(ctx context.Context, role string, work RoleFunc) error {
	if err := n.checkKnown(role); err != nil {
		return err
	}
	return n.elections.Join(ctx, roles.Role(role), func(ctx context.Context, fence leaderstore.Fence) error {
		return work(ctx, n.term(fence, nil))
	})
}

// StepDown hands over a role that this node leads. Another node may take it at once. This
// node backs off for three check intervals, or three heartbeats if those are longer, as
// after forge leader step-down. StepDown returns once Leads is false and the contexts of
// the work have ended, so the work itself may call it. The next term begins once the work
// has returned. StepDown returns ErrNotLeader if the node does not lead the role, and the
// error of ctx if ctx ends first; the request remains in effect then.
func (n *Node) StepDown(ctx context.Context, role string) error {
	if err := n.checkKnown(role); err != nil {
		return err
	}
	return n.elections.StepDown(ctx, roles.Role(role))
}

// checkKnown returns an error if the role is neither built in nor custom.
func (n *Node) checkKnown(role string) error {
	known := n.roleNames()
	if !slices.Contains(known, role) {
		return fmt.Errorf("unknown role %q: this node has %s; forge.WithRole adds others", role, strings.Join(known, ", "))
	}
	return nil
}

// term converts a fence to a Term.
func (n *Node) term(fence leaderstore.Fence, report func()) Term {
	return Term{
		Role: fence.Role, Number: fence.Term, NodeID: fence.NodeID,
		fence: fence, pool: n.pool, report: report,
	}
}
