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

// Mover moves roles between nodes and closes nodes to work, because somebody asks
// for it. It asks and does not wait: the leader learns of it through the database.
// What cannot be is a [handover.RefusedError].
type Mover interface {
	// HandOver returns the leader that is asked to hand its role over, to the node
	// target or, without one, to any other; asked is false when target leads.
	HandOver(ctx context.Context, role, target, by string) (leader leaderstore.Leader, asked bool, err error)
	// Drain returns the leaders that are asked to hand over. Those of the node that
	// it closes are all that it leads.
	Drain(ctx context.Context, node, by string) ([]leaderstore.Leader, error)
	Undrain(ctx context.Context, node, by string) error
	// Drill has a role handed over to any other node, waits for it and measures it. Of
	// all moves it alone waits.
	Drill(ctx context.Context, role, by string) (handover.Drilled, error)
}

var (
	errNoSuchRole = &refusal{http.StatusNotFound, "There is no such role."}
	errNoSuchNode = &refusal{http.StatusNotFound, "There is no such node."}
)

// sentence makes one of what a command says.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

// refuseMove turns what a hand-over says into an answer.
func refuseMove(err error) error {
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

// moveDocument is what was asked for. Whether it has happened is told by the
// leaders: a later term, or the node's state.
type moveDocument struct {
	Role     string `json:"role"`
	Term     int64  `json:"term"`
	LeaderID string `json:"leader_id"`
	To       string `json:"to,omitempty"`
	Asked    bool   `json:"asked"`
}

type transferAsk struct {
	To string `json:"to" body:"required"`
}

// apiHandOver asks a leader to step down or, with a target, to transfer.
func (s *server) apiHandOver(transfer bool) http.HandlerFunc {
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
			s.answer(w, r, err)
			return
		}
		leader, asked, err := s.Mover.HandOver(r.Context(), r.PathValue("role"), body.To, whoAsks(r, viaAPI))
		if err != nil {
			s.answer(w, r, refuseMove(err))
			return
		}
		writeJSON(w, http.StatusAccepted, moveDocument{leader.Role, leader.Term, leader.NodeID, body.To, asked})
	}
}

var errNoTarget = wrongFields(wrongField("to", "is missing; want the id of the node that shall lead"))

// apiDrill answers when the role has a new leader.
func (s *server) apiDrill(w http.ResponseWriter, r *http.Request) {
	err := readJSON(w, r, &struct{}{})
	var done handover.Drilled
	if err == nil {
		done, err = s.Mover.Drill(r.Context(), r.PathValue("role"), whoAsks(r, viaAPI))
	}
	if err != nil {
		s.answer(w, r, refuseMove(err))
		return
	}
	noteDown(r.Context(), fmt.Sprintf("from %s to %s, %v ms", done.From, done.To, done.TookMS))
	writeJSON(w, http.StatusOK, done)
}

// drainDocument tells which roles a drained node was asked to hand over.
type drainDocument struct {
	NodeID string         `json:"node_id"`
	State  string         `json:"state"`
	Roles  []moveDocument `json:"roles"`
}

func (s *server) apiDrain(drain bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := readJSON(w, r, &struct{}{}); err != nil {
			s.answer(w, r, err)
			return
		}
		done, err := s.drain(r.Context(), r.PathValue("node"), whoAsks(r, viaAPI), drain)
		if err != nil {
			s.answer(w, r, err)
			return
		}
		writeJSON(w, http.StatusAccepted, done)
	}
}

func (s *server) drain(ctx context.Context, node, by string, drain bool) (drainDocument, error) {
	done := drainDocument{NodeID: node, State: "active", Roles: []moveDocument{}}
	if !drain {
		return done, refuseMove(s.Mover.Undrain(ctx, node, by))
	}
	done.State = "draining"
	led, err := s.Mover.Drain(ctx, node, by)
	for _, leader := range led {
		done.Roles = append(done.Roles, moveDocument{leader.Role, leader.Term, leader.NodeID, "", true})
	}
	return done, refuseMove(err)
}

// formHandOver does it once it was confirmed.
func (s *server) formHandOver(transfer bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fields, ok := s.form(w, r)
		if !ok {
			return
		}
		role, target, did := r.PathValue("role"), "", didStepDown
		if transfer {
			if target, did = fields.Get("to"), didTransfer; target == "" {
				s.answer(w, r, errNoTarget)
				return
			}
		}
		if _, _, err := s.Mover.HandOver(r.Context(), role, target, whoAsks(r, viaPage)); err != nil {
			s.answer(w, r, refuseMove(err))
			return
		}
		http.Redirect(w, r, "/leaders?"+values("did", did, "of", role, "to", target), http.StatusSeeOther)
	}
}

func (s *server) formDrain(drain bool) http.HandlerFunc {
	did := didUndrain
	if drain {
		did = didDrain
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.form(w, r); !ok {
			return
		}
		node := r.PathValue("node")
		if _, err := s.drain(r.Context(), node, whoAsks(r, viaPage), drain); err != nil {
			s.answer(w, r, err)
			return
		}
		http.Redirect(w, r, "/nodes?"+values("did", did, "node", node), http.StatusSeeOther)
	}
}

// What the forms have done, for the pages that they lead to.
const (
	didStepDown = "step-down"
	didTransfer = "transfer"
	didDrain    = "drain"
	didUndrain  = "undrain"
)

// moveRoutes are those of the API.
func (s *server) moveRoutes() []route {
	if s.Mover == nil {
		return nil
	}
	return []route{
		{path: "/api/v1/leaders/{role}/step-down", post: s.apiHandOver(false), write: admin, posts: does[moveDocument](http.StatusAccepted, "Ask a leader to step down")},
		{path: "/api/v1/leaders/{role}/transfer", post: s.apiHandOver(true), write: admin, posts: takes[transferAsk, moveDocument](http.StatusAccepted, "Ask a leader to hand over to a node")},
		{path: "/api/v1/leaders/{role}/drill", post: s.apiDrill, write: admin, action: "drill", posts: apart(does[handover.Drilled](http.StatusOK, "Have a role handed over, and measure it"))},
		{path: "/api/v1/nodes/{node}/drain", post: s.apiDrain(true), write: admin, posts: does[drainDocument](http.StatusAccepted, "Close a node to work")},
		{path: "/api/v1/nodes/{node}/undrain", post: s.apiDrain(false), write: admin, posts: does[drainDocument](http.StatusAccepted, "Open a node to work")},
	}
}

// movePages ask first, and then do it.
func (s *server) movePages() []route {
	if s.Mover == nil {
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
