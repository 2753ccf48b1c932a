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

// probeRoutes returns the routes for load balancers and the documents under /cluster.
func (s *API) probeRoutes() []route.Route {
	facts := reply[LeaderFacts](http.StatusOK, route.LeaderNodeHeader, route.LeaderTermHeader, route.LeaderURLHeader)
	other := facts
	other.Status = http.StatusServiceUnavailable
	status := route.Operation{
		ID: "getClusterStatus", Summary: "Describe the cluster with its nodes", Reply: reply[StatusDocument](http.StatusOK),
		About: "Returns the cluster's health with its roles, the scheduler's lease and all nodes. A cluster without a leader is answered with 200 and `degraded`.",
	}
	leader := route.Operation{
		ID: "getClusterLeader", Summary: "Show the leader of a role; 503 while there is none", Reply: reply[LeaderDocument](http.StatusOK),
		About: "Returns the lease of the role's leader.", Query: []route.Parameter{route.Text("role", "The role; by default scheduler.")},
	}
	health := route.Operation{
		ID: "getClusterHealth", Summary: "Show the health of the cluster; 503 if the database cannot be read",
		Reply: reply[HealthDocument](http.StatusOK), Also: []route.Reply{reply[HealthDocument](http.StatusServiceUnavailable)},
		About: "Returns `healthy` if every role has a leader, and `degraded` otherwise. Both are answered with 200; 503 means that the database cannot be read.",
	}
	return []route.Route{
		{Path: "/healthz", Get: s.healthz, Read: route.Open, Gets: &route.Operation{
			ID: "getHealth", Summary: "Check that the process answers", Reply: reply[healthzDocument](http.StatusOK),
			About: "Answers 200 while the process serves requests. It reads nothing from the database: use it for liveness probes.",
		}},
		{Path: "/readyz", Get: s.readyz, Read: route.Open, Gets: &route.Operation{
			ID: "getReadiness", Summary: "Check whether the node can serve; 503 if it cannot",
			Reply: reply[Readiness](http.StatusOK), Also: []route.Reply{reply[Readiness](http.StatusServiceUnavailable)},
			About: "Answers 200 when the node can reach the database, the schema is current and its workers run, and 503 otherwise. `not_ready` lists the reasons; without a token they name no hosts. Leadership does not matter.",
		}},
		{Path: "/leader/{role}", Get: s.leaderProbe, Read: route.Open, Gets: &route.Operation{
			ID: "probeLeader", Summary: "Answer 200 on the node that leads the role, and 503 on the others", Reply: facts, Also: []route.Reply{other},
			About: "Lets a load balancer route requests to the leader of a role. Both answers name the leader in the body and in the headers, if it is known. The leader answers from memory, even if the database is down.",
		}},
		{Path: "/cluster/status", Get: s.checked(&status, s.clusterStatus), Read: route.Viewer, Gets: &status},
		{Path: "/cluster/leader", Get: s.checked(&leader, s.clusterLeader), Read: route.Viewer, Gets: &leader},
		{Path: "/cluster/health", Get: s.checked(&health, s.clusterHealth), Read: route.Viewer, Gets: &health},
	}
}

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
	ctx, cancel := context.WithTimeout(r.Context(), auth.ProbeTimeout)
	defer cancel()
	err := s.Readiness.Get(ctx)
	missing := cluster.Causes(err, err != nil && s.SeesDetails(r.WithContext(ctx)))
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
		facts.Error = s.UnreadableError()
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
