package cluster

import (
	"context"
	"net/http"

	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/leaderstore"
)

// RoleOps hands roles over and drains nodes on behalf of an operator. It records a request
// and does not wait: the leader reads the request from the database. It returns a
// [handover.RefusedError] for a request that cannot be carried out.
type RoleOps interface {
	// HandOver requests that the leader of a role hands it over to the node target or, if
	// target is empty, to any other node. It returns that leader. asked is false if target
	// leads already.
	HandOver(ctx context.Context, role, target, by string) (leader leaderstore.Leader, asked bool, err error)
	// Drain closes a node to new work and requests that it hands over all its roles. It
	// returns one leader for each of them.
	Drain(ctx context.Context, node, by string) ([]leaderstore.Leader, error)
	Undrain(ctx context.Context, node, by string) error
	// Drill requests a hand-over to any other node, waits for the next leader and measures
	// the time. It is the only method that waits.
	Drill(ctx context.Context, p handover.Params) (handover.DrillResult, error)
}

// HandOverDocument describes a requested hand-over. It is complete when GET /api/v1/leaders
// shows a later term.
type HandOverDocument struct {
	Role     string `json:"role"`
	Term     int64  `json:"term"`
	LeaderID string `json:"leader_id"`
	To       string `json:"to,omitempty"`
	Asked    bool   `json:"asked"`
}

// ErrNoTarget answers a transfer without a target.
var ErrNoTarget = web.WrongFields(web.WrongField("to", "is missing; want the id of the node that shall lead"))

// ErrNoNode answers requests for a node that does not exist.
var ErrNoNode = web.Refuse(http.StatusNotFound, "There is no such node.")

// DrainDocument names the roles that a drained node was requested to hand over.
type DrainDocument struct {
	NodeID string             `json:"node_id"`
	State  string             `json:"state"`
	Roles  []HandOverDocument `json:"roles"`
}

// Drain drains or undrains a node.
func (s *Cluster) Drain(ctx context.Context, node, by string, drain bool) (DrainDocument, error) {
	done := DrainDocument{NodeID: node, State: "active", Roles: []HandOverDocument{}}
	if !drain {
		return done, s.RoleOps.Undrain(ctx, node, by)
	}
	done.State = "draining"
	led, err := s.RoleOps.Drain(ctx, node, by)
	for _, leader := range led {
		done.Roles = append(done.Roles, HandOverDocument{leader.Role, leader.Term, leader.NodeID, "", true})
	}
	return done, err
}
