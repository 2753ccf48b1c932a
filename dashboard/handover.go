package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

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
	Drill(ctx context.Context, role, by string) (handover.DrillResult, error)
}

var (
	errNoSuchRole = &refusal{http.StatusNotFound, "There is no such role."}
	errNoSuchNode = &refusal{http.StatusNotFound, "There is no such node."}
)

// sentence capitalizes a message and ends it with a period.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

// refuseHandOver converts an error of RoleOps to an answer.
func refuseHandOver(err error) error {
	no, ok := errors.AsType[*handover.RefusedError](err)
	late, tooLate := errors.AsType[*handover.NotTakenError](err)
	switch {
	case tooLate:
		return &refusal{http.StatusConflict, sentence(late.Error() + "; it stays where it is")}
	case !ok:
		return err
	case no.Missing:
		return &refusal{http.StatusNotFound, sentence(no.Why)}
	default:
		return &refusal{http.StatusConflict, sentence(no.Why)}
	}
}

// handOverDocument describes a requested hand-over. It is complete when GET /api/v1/leaders
// shows a later term.
type handOverDocument struct {
	Role     string `json:"role"`
	Term     int64  `json:"term"`
	LeaderID string `json:"leader_id"`
	To       string `json:"to,omitempty"`
	Asked    bool   `json:"asked"`
}

type transferAsk struct {
	To string `json:"to" body:"required"`
}

// apiHandOver requests that a leader steps down or, with a target, transfers its role.
func (s *apiServer) apiHandOver(transfer bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body transferAsk
		var err error
		if transfer {
			err = readJSON(w, r, &body)
		} else {
			err = readJSON(w, r, &struct{}{})
		}
		if err == nil && transfer && body.To == "" {
			err = errNoTarget
		}
		if err != nil {
			s.answerError(w, r, err)
			return
		}
		leader, asked, err := s.RoleOps.HandOver(r.Context(), r.PathValue("role"), body.To, requestOrigin(r, viaAPI))
		if err != nil {
			s.answerError(w, r, refuseHandOver(err))
			return
		}
		writeJSON(w, http.StatusAccepted, handOverDocument{leader.Role, leader.Term, leader.NodeID, body.To, asked})
	}
}

var errNoTarget = wrongFields(wrongField("to", "is missing; want the id of the node that shall lead"))

// apiDrill answers when the role has a new leader.
func (s *apiServer) apiDrill(w http.ResponseWriter, r *http.Request) {
	err := readJSON(w, r, &struct{}{})
	var done handover.DrillResult
	if err == nil {
		done, err = s.RoleOps.Drill(r.Context(), r.PathValue("role"), requestOrigin(r, viaAPI))
	}
	if err != nil {
		s.answerError(w, r, refuseHandOver(err))
		return
	}
	noteAction(r.Context(), fmt.Sprintf("from %s to %s, %v ms", done.From, done.To, done.TookMS))
	writeJSON(w, http.StatusOK, done)
}

// drainDocument names the roles that a drained node was requested to hand over.
type drainDocument struct {
	NodeID string             `json:"node_id"`
	State  string             `json:"state"`
	Roles  []handOverDocument `json:"roles"`
}

func (s *apiServer) apiDrain(drain bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := readJSON(w, r, &struct{}{}); err != nil {
			s.answerError(w, r, err)
			return
		}
		done, err := s.drain(r.Context(), r.PathValue("node"), requestOrigin(r, viaAPI), drain)
		if err != nil {
			s.answerError(w, r, err)
			return
		}
		writeJSON(w, http.StatusAccepted, done)
	}
}

func (s *clusterState) drain(ctx context.Context, node, by string, drain bool) (drainDocument, error) {
	done := drainDocument{NodeID: node, State: "active", Roles: []handOverDocument{}}
	if !drain {
		return done, refuseHandOver(s.RoleOps.Undrain(ctx, node, by))
	}
	done.State = "draining"
	led, err := s.RoleOps.Drain(ctx, node, by)
	for _, leader := range led {
		done.Roles = append(done.Roles, handOverDocument{leader.Role, leader.Term, leader.NodeID, "", true})
	}
	return done, refuseHandOver(err)
}

// formHandOver handles the confirmed form.
func (s *pageServer) formHandOver(transfer bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fields, ok := s.form(w, r)
		if !ok {
			return
		}
		role, target, did := r.PathValue("role"), "", didStepDown
		if transfer {
			if target, did = fields.Get("to"), didTransfer; target == "" {
				s.answerError(w, r, errNoTarget)
				return
			}
		}
		if _, _, err := s.RoleOps.HandOver(r.Context(), role, target, requestOrigin(r, viaPage)); err != nil {
			s.answerError(w, r, refuseHandOver(err))
			return
		}
		http.Redirect(w, r, "/leaders?"+values("did", did, "of", role, "to", target), http.StatusSeeOther)
	}
}

func (s *pageServer) formDrain(drain bool) http.HandlerFunc {
	did := didUndrain
	if drain {
		did = didDrain
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.form(w, r); !ok {
			return
		}
		node := r.PathValue("node")
		if _, err := s.drain(r.Context(), node, requestOrigin(r, viaPage), drain); err != nil {
			s.answerError(w, r, err)
			return
		}
		http.Redirect(w, r, "/nodes?"+values("did", did, "node", node), http.StatusSeeOther)
	}
}

// The values of did, with which a form redirects to the page that reports the result.
const (
	didStepDown = "step-down"
	didTransfer = "transfer"
	didDrain    = "drain"
	didUndrain  = "undrain"
)

// handOverRoutes returns the API routes.
func (s *apiServer) handOverRoutes() []route {
	if s.RoleOps == nil {
		return nil
	}
	return []route{
		{path: "/api/v1/leaders/{role}/step-down", post: s.apiHandOver(false), write: admin, posts: does[handOverDocument](http.StatusAccepted, "Ask a leader to step down")},
		{path: "/api/v1/leaders/{role}/transfer", post: s.apiHandOver(true), write: admin, posts: takes[transferAsk, handOverDocument](http.StatusAccepted, "Ask a leader to hand over to a node")},
		{path: "/api/v1/leaders/{role}/drill", post: s.apiDrill, write: admin, action: "drill", posts: nonTx(does[handover.DrillResult](http.StatusOK, "Hand a role over and measure it"))},
		{path: "/api/v1/nodes/{node}/drain", post: s.apiDrain(true), write: admin, posts: does[drainDocument](http.StatusAccepted, "Drain a node")},
		{path: "/api/v1/nodes/{node}/undrain", post: s.apiDrain(false), write: admin, posts: does[drainDocument](http.StatusAccepted, "Undrain a node")},
	}
}

// handOverPages returns the confirmation pages with their forms.
func (s *pageServer) handOverPages() []route {
	if s.RoleOps == nil {
		return nil
	}
	return []route{
		{path: "/leaders/{role}/step-down", get: s.page("stepdown"), post: s.formHandOver(false), read: admin, write: admin},
		{path: "/leaders/{role}/transfer", get: s.page("transfer"), post: s.formHandOver(true), read: admin, write: admin},
		{path: "/nodes/{node}/drain", get: s.page("drain"), post: s.formDrain(true), read: admin, write: admin},
		{path: "/nodes/{node}/undrain", get: s.page("undrain"), post: s.formDrain(false), read: admin, write: admin},
	}
}

func nodePath(id string) string   { return "/nodes/" + url.PathEscape(id) }
func rolePath(role string) string { return "/leaders/" + url.PathEscape(role) }
