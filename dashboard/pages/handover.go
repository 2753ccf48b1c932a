package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/format"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/handover"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

var errNoSuchRole = web.Refuse(http.StatusNotFound, "There is no such role.")

// formHandOver handles the confirmed form.
func (s *Pages) formHandOver(transfer bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fields, ok := s.Form(w, r)
		if !ok {
			return
		}
		role, target, did := r.PathValue("role"), "", didStepDown
		if transfer {
			if target, did = fields.Get("to"), didTransfer; target == "" {
				s.AnswerError(w, r, cluster.ErrNoTarget)
				return
			}
		}
		if _, _, err := s.RoleOps.HandOver(r.Context(), role, target, auth.RequestOrigin(r, viaPage)); err != nil {
			s.AnswerError(w, r, err)
			return
		}
		redirectWithNotice(w, r, "/leaders?"+web.Encode("did", did, "of", role, "target", target))
	}
}

func (s *Pages) formDrain(drain bool) http.HandlerFunc {
	did := didUndrain
	if drain {
		did = didDrain
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.Form(w, r); !ok {
			return
		}
		node := r.PathValue("node")
		if _, err := s.Drain(r.Context(), node, auth.RequestOrigin(r, viaPage), drain); err != nil {
			s.AnswerError(w, r, err)
			return
		}
		redirectWithNotice(w, r, nodePath(node)+"?"+web.Encode("did", did))
	}
}

// The values of did, with which a form redirects to the page that reports the result.
const (
	didStepDown = "step-down"
	didTransfer = "transfer"
	didDrain    = "drain"
	didUndrain  = "undrain"
)

// handOverPages returns the confirmation pages with their forms.
func (s *Pages) handOverPages() []route.Route {
	if s.RoleOps == nil {
		return nil
	}
	return []route.Route{
		{Path: "/leaders/{role}/step-down", Get: s.page("stepdown"), Post: s.formHandOver(false), Read: route.Admin, Write: route.Admin},
		{Path: "/leaders/{role}/transfer", Get: s.page("transfer"), Post: s.formHandOver(true), Read: route.Admin, Write: route.Admin},
		{Path: "/nodes/{node}/drain", Get: s.page("drain"), Post: s.formDrain(true), Read: route.Admin, Write: route.Admin},
		{Path: "/nodes/{node}/undrain", Get: s.page("undrain"), Post: s.formDrain(false), Read: route.Admin, Write: route.Admin},
	}
}

// handOverBody is the confirmation page of a hand-over or a drain.
type handOverBody struct {
	base
	Title, Verb, Icon string
	// What describes the effect. Refused is the reason why it is not possible.
	What, Refused string
	// Targets are the nodes that a role can be transferred to; empty for other actions.
	Targets []string
	Path    string
	Back    string
	BackTo  string
}

// loadHandOver loads the confirmation page of a hand-over.
func loadHandOver(transfer bool) func(*Pages, context.Context, *request) (body, error) {
	return func(s *Pages, ctx context.Context, req *request) (body, error) {
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		role := req.Values.Get("role")
		i := slices.IndexFunc(facts.leaders, func(l leaderstore.Leader) bool { return l.Role == role })
		if i < 0 {
			return nil, errNoSuchRole
		}
		b := &handOverBody{
			base:  base{name: "Step down: " + roleWords(role), beat: s.pulseOf(facts)},
			Title: "Have another node lead as " + roleWords(role) + "?", Verb: "Step down", Icon: "stop",
			Path: rolePath(role) + "/" + didStepDown, Back: "/leaders", BackTo: "Leadership",
		}
		if transfer {
			b.name, b.Verb, b.Icon, b.Path = "Transfer: "+roleWords(role), "Transfer", "retry", rolePath(role)+"/"+didTransfer
		}
		b.judge(facts, facts.leaders[i], transfer)
		return b, nil
	}
}

func (b *handOverBody) judge(facts clusterFacts, leader leaderstore.Leader, transfer bool) {
	candidates := handover.Candidates(facts.nodes, leader)
	switch {
	case !leader.Leads():
		b.Refused = "It has no leader now."
	case len(candidates) == 0:
		b.Refused = "No other node can lead it."
	default:
		b.What = fmt.Sprintf("%s leads in term %d. It completes its current work, and the next leader continues within a tenth of a second. No tick is lost.",
			leader.NodeID, leader.Term)
	}
	if transfer {
		b.Targets = candidates
	}
}

// loadDrain loads the confirmation page of a drain or an undrain.
func loadDrain(drain bool) func(*Pages, context.Context, *request) (body, error) {
	return func(s *Pages, ctx context.Context, req *request) (body, error) {
		facts, err := s.cluster(ctx)
		if err != nil {
			return nil, err
		}
		id := req.Values.Get("node")
		node, err := facts.node(id)
		if err != nil {
			return nil, err
		}
		b := &handOverBody{
			base:  base{name: "Drain " + id, beat: s.pulseOf(facts)},
			Title: "Drain " + id + "?", Verb: "Drain", Icon: "pause", Path: nodePath(id) + "/" + didDrain, Back: nodePath(id), BackTo: id,
			What: "Its roles go to other nodes, and it gets no more jobs. " + runningWords(node.Running) + " It stays drained until it is undrained or restarted.",
		}
		if !drain {
			b.name, b.Title, b.Verb, b.Icon, b.Path = "Undrain "+id, "Undrain "+id+"?", "Undrain", "play", nodePath(id)+"/"+didUndrain
			b.What = "It can lead roles and gets jobs again."
		}
		if !node.Present() {
			b.Refused = cmp.Or(map[string]string{nodestore.Dead: "It is dead."}[node.State], "It has left.")
		}
		return b, nil
	}
}

func runningWords(running int) string {
	if running == 0 {
		return "It runs no job now."
	}
	return format.Plural(running, "running job continues.", "running jobs continue.")
}
