package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/leaderstore"
)

// healthz reports that the process answers, and nothing else.
func (s *API) healthz(w http.ResponseWriter, _ *http.Request) {
	web.WriteJSON(w, http.StatusOK, healthzDocument{NodeID: s.Self.NodeID, Status: "ok", Version: s.Self.Version})
}

type healthzDocument struct {
	NodeID  string `json:"node_id"`
	Status  string `json:"status"`
	Version string `json:"version"`
}

// Readiness is the body of /readyz.
type Readiness struct {
	Ready    bool     `json:"ready"`
	NodeID   string   `json:"node_id"`
	NotReady []string `json:"not_ready,omitempty"`
}

func (s *API) readyz(w http.ResponseWriter, r *http.Request) {
	missing := cluster.Causes(s.Readiness.Get(r.Context()), s.SeesDetails(r))
	status := http.StatusOK
	if len(missing) > 0 {
		status = http.StatusServiceUnavailable
	}
	web.WriteJSON(w, status, Readiness{Ready: len(missing) == 0, NodeID: s.Self.NodeID, NotReady: missing})
}

// LeaderFacts is the body of /leader/{role}. Its first three fields are also sent as
// headers.
type LeaderFacts struct {
	Role   string `json:"role"`
	NodeID string `json:"node_id,omitempty"`
	Term   int64  `json:"term"`
	APIURL string `json:"api_url,omitempty"`
	// Leads reports whether this node is the leader.
	Leads bool   `json:"leads"`
	Error string `json:"error,omitempty"`
}

// leaderProbe answers load balancers: 200 on the leader and 503 on all other nodes. The
// leader answers from memory, so it answers even if the database is down. Its memory is
// cleared no later than it steps down.
func (s *API) leaderProbe(w http.ResponseWriter, r *http.Request) {
	role := r.PathValue("role")
	if fence, ok := s.Leads(role); ok {
		writeLeaderFacts(w, http.StatusOK, LeaderFacts{Role: role, NodeID: s.Self.NodeID, Term: fence.Term, APIURL: s.Self.APIURL, Leads: true})
		return
	}
	facts := LeaderFacts{Role: role}
	leaders, err := s.leaders(r.Context())
	i := slices.IndexFunc(leaders, func(l leaderstore.Leader) bool { return l.Role == role })
	switch {
	case err != nil && slices.Contains(s.Roles, role):
		facts.Error = "the database cannot be read"
	case i >= 0:
		facts = factsOf(leaders[i], s.Self)
	case !slices.Contains(s.Roles, role):
		web.WriteProblem(w, http.StatusNotFound, "There is no such role.")
		return
	}
	writeLeaderFacts(w, http.StatusServiceUnavailable, facts)
}

// factsOf describes a row for a node that does not lead. A row that names this node belongs
// to a term that has ended.
func factsOf(l leaderstore.Leader, self cluster.Self) LeaderFacts {
	facts := LeaderFacts{Role: l.Role, Term: l.Term}
	if l.Leads() && l.Incarnation != self.Incarnation {
		facts.NodeID, facts.APIURL = l.NodeID, l.APIURL
	}
	return facts
}

func writeLeaderFacts(w http.ResponseWriter, status int, facts LeaderFacts) {
	h := w.Header()
	h.Set(route.LeaderNodeHeader, facts.NodeID)
	h.Set(route.LeaderTermHeader, strconv.FormatInt(facts.Term, 10))
	h.Set(route.LeaderURLHeader, facts.APIURL)
	web.WriteJSON(w, status, facts)
}

// leaders reads the roles for probes. It caches them, because many load balancers may probe
// at the same time.
func (s *API) leaders(ctx context.Context) ([]leaderstore.Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, auth.ProbeTimeout)
	defer cancel()
	leaders, err := s.lead.Get(ctx)
	if err != nil {
		s.Guard.Logger.WarnContext(ctx, "read leaders for a probe", "error", err)
	}
	return leaders, err
}
