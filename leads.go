package forge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

// ErrNotLeader says that this node does not lead the role now.
var ErrNotLeader = roles.ErrNotLeader

// Leads returns the current term of a role, built-in or the program's own, if this node
// leads it. It asks nobody: the answer is what the node knows itself. False is certain.
// True holds within the trust window, that is until 0.8 leases after the last confirmed
// renewal was sent; whether it still holds at the time of a write only Term.Check says.
// Leads is false during the takeover delay of a role, once the role is being handed
// over, and for a role that this node does not know.
func (n *Node) Leads(role string) (Term, bool) {
	fence, leads := n.campaign.Leads(roles.Role(role))
	if !leads {
		return Term{}, false
	}
	return n.term(fence, nil), true
}

// RunIfLeader calls work if this node leads the role as Leads says, and returns the
// work's error. Otherwise it returns ErrNotLeader without calling it.
//
// The context of the work ends with ctx and when the lead ends, with ErrDeposed as its
// cause. The work must return soon after that: until it has, for a lease at most, the
// role is not handed over in order, and until it has this node does not stand for the
// role again. Work that writes to the database calls Term.Check first in each of its
// transactions, which then cannot commit under a term that is over.
//
// An error that is not ErrNotLeader and not the work's own says that the role is
// unknown.
func (n *Node) RunIfLeader(ctx context.Context, role string, work RoleFunc) error {
	if err := n.checkKnown(role); err != nil {
		return err
	}
	return n.campaign.Join(ctx, roles.Role(role), func(ctx context.Context, fence leaderstore.Fence) error {
		return work(ctx, n.term(fence, nil))
	})
}

// StepDown hands over a role that this node leads. Another node may take it at once; this
// one leaves it to others for three check intervals, or three heartbeats if those are
// longer, as after forge leader step-down. StepDown returns once
// Leads is false and the contexts of the work have ended, so it may be called from the
// work itself. The next term begins when the work has returned. It returns ErrNotLeader
// if there is nothing to hand over, and the error of ctx when that ends first; the
// request stands then.
func (n *Node) StepDown(ctx context.Context, role string) error {
	if err := n.checkKnown(role); err != nil {
		return err
	}
	return n.campaign.StepDown(ctx, roles.Role(role))
}

// checkKnown tells a role that this node could not lead from one that it does not.
func (n *Node) checkKnown(role string) error {
	known := n.roleNames()
	if !slices.Contains(known, role) {
		return fmt.Errorf("unknown role %q: this node has %s; forge.WithRole adds others", role, strings.Join(known, ", "))
	}
	return nil
}

// term is a term as programs see it.
func (n *Node) term(fence leaderstore.Fence, report func()) Term {
	return Term{
		Role: fence.Role, Number: fence.Term, NodeID: fence.NodeID,
		fence: fence, pool: n.pool, report: report,
	}
}
