package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// LeaderDocument is the lease of a role's leader. Its field names are part of the API.
type LeaderDocument struct {
	Role       string    `json:"role"`
	LeaderID   string    `json:"leader_id,omitempty"`
	Term       int64     `json:"term"`
	AcquiredAt time.Time `json:"acquired_at,omitzero"`
	RenewedAt  time.Time `json:"renewed_at,omitzero"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	// LeaseRemaining is measured by the database's clock, in seconds.
	LeaseRemaining float64 `json:"lease_remaining_seconds"`
	Hostname       string  `json:"hostname,omitempty"`
	APIURL         string  `json:"api_url,omitempty"`
	Elected        bool    `json:"elected"`
}

type nodeDocument struct {
	NodeID        string    `json:"node_id"`
	State         string    `json:"state"`
	Hostname      string    `json:"hostname"`
	APIURL        string    `json:"api_url"`
	Version       string    `json:"version"`
	IsHealthy     bool      `json:"is_healthy"`
	LastHeartbeat time.Time `json:"last_heartbeat"`
}

// HealthDocument is the body of /cluster/health. StatusDocument adds the details.
type HealthDocument struct {
	Status       string           `json:"status"` // healthy or degraded
	Causes       []string         `json:"causes,omitempty"`
	Clustering   string           `json:"clustering"`
	Cluster      string           `json:"cluster"`
	NodeID       string           `json:"node_id"`
	State        string           `json:"state"` // leader or follower, of the scheduler's role
	IsLeader     bool             `json:"is_leader"`
	LeaderID     string           `json:"leader_id"`
	Term         int64            `json:"term"`
	ClusterSize  int              `json:"cluster_size"`
	ClusterReady bool             `json:"cluster_ready"`
	Roles        []LeaderDocument `json:"roles"`
	Timestamp    time.Time        `json:"timestamp"`
	Version      string           `json:"version"`
	Error        string           `json:"error,omitempty"`
}

// StatusDocument is the body of /cluster/status.
type StatusDocument struct {
	HealthDocument
	Lease *LeaderDocument `json:"lease"`
	Nodes []nodeDocument  `json:"nodes"`
}

// clusterStatus answers 200 whenever the database can be read, with or without a leader.
func (s *API) clusterStatus(w http.ResponseWriter, r *http.Request, _ *web.Query) {
	doc, err := s.clusterDocument(r.Context())
	if err != nil {
		web.WriteProblem(w, http.StatusServiceUnavailable, s.Unreadable())
		return
	}
	web.WriteJSON(w, http.StatusOK, doc)
}

// clusterHealth answers 200 if the health is known, whether healthy or degraded, and 503
// with the same document if the database cannot be read.
func (s *API) clusterHealth(w http.ResponseWriter, r *http.Request, _ *web.Query) {
	doc, err := s.clusterDocument(r.Context())
	status := http.StatusOK
	if err != nil {
		status = http.StatusServiceUnavailable
		doc.Error = s.UnreadableError()
	}
	web.WriteJSON(w, status, doc.HealthDocument)
}

// clusterLeader answers 503 while the role has no leader.
func (s *API) clusterLeader(w http.ResponseWriter, r *http.Request, q *web.Query) {
	role := cmp.Or(q.Values.Get("role"), cluster.SchedulerRole)
	doc, err := s.clusterDocument(r.Context())
	if err != nil {
		web.WriteProblem(w, http.StatusServiceUnavailable, s.Unreadable())
		return
	}
	lease := find(doc.Roles, role)
	switch {
	case lease == nil:
		web.WriteProblem(w, http.StatusNotFound, "There is no such role.")
	case !lease.Elected:
		web.WriteProblem(w, http.StatusServiceUnavailable, "No leader elected.")
	default:
		web.WriteJSON(w, http.StatusOK, lease)
	}
}

func (s *API) clusterDocument(ctx context.Context) (StatusDocument, error) {
	doc := StatusDocument{HealthDocument: HealthDocument{
		Status: "degraded", Clustering: "enabled", Cluster: s.Self.Cluster,
		NodeID: s.Self.NodeID, State: "follower", Roles: []LeaderDocument{},
		Timestamp: s.Now().UTC(), Version: s.Self.Version,
	}, Nodes: []nodeDocument{}}
	if fence, ok := s.Leads(cluster.SchedulerRole); ok {
		doc.State, doc.IsLeader, doc.LeaderID, doc.Term = "leader", true, s.Self.NodeID, fence.Term
	}
	leaders, err := s.leaders(ctx)
	if err != nil {
		return doc, err
	}
	nodes, err := s.Source.Nodes.List(ctx)
	if err != nil {
		return doc, err
	}
	causes, err := s.Source.Health.Causes(ctx)
	if err != nil {
		return doc, err
	}
	if doc.Causes = causes; len(causes) == 0 {
		doc.Status = "healthy"
	}
	doc.addNodes(nodes)
	doc.addRoles(s.AllRoles(leaders), nodes)
	return doc, nil
}

func (d *StatusDocument) addNodes(nodes []nodestore.Node) {
	for _, n := range nodes {
		d.Nodes = append(d.Nodes, nodeDocument{
			NodeID: n.NodeID, State: n.State, Hostname: n.Hostname, APIURL: n.APIURL, Version: n.Version,
			IsHealthy: n.Present(), LastHeartbeat: n.LastHeartbeatAt.UTC(),
		})
		if n.Present() {
			d.ClusterSize++
		}
	}
}

// addRoles sets the roles and whether the cluster is ready: a scheduler leads.
func (d *StatusDocument) addRoles(leaders []leaderstore.Leader, nodes []nodestore.Node) {
	for _, l := range leaders {
		d.Roles = append(d.Roles, documentOf(l, nodes))
	}
	if lease := find(d.Roles, cluster.SchedulerRole); lease != nil {
		d.Lease, d.ClusterReady, d.Term = lease, lease.Elected, lease.Term
		d.LeaderID = lease.LeaderID
	}
}

func documentOf(l leaderstore.Leader, nodes []nodestore.Node) LeaderDocument {
	doc := LeaderDocument{Role: l.Role, Term: l.Term}
	if !l.Leads() {
		return doc
	}
	doc.LeaderID, doc.APIURL, doc.Elected = l.NodeID, l.APIURL, true
	doc.AcquiredAt, doc.RenewedAt, doc.ExpiresAt = l.AcquiredAt.UTC(), l.RenewedAt.UTC(), l.LeaseUntil.UTC()
	doc.LeaseRemaining = l.LeaseUntil.Sub(l.Now).Seconds()
	for _, n := range nodes {
		if n.NodeID == l.NodeID {
			doc.Hostname = n.Hostname
		}
	}
	return doc
}

func find(roles []LeaderDocument, role string) *LeaderDocument {
	for i := range roles {
		if roles[i].Role == role {
			return &roles[i]
		}
	}
	return nil
}
