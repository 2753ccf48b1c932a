package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/forge-scheduler/forge/leaderstore"
)

// probeTimeout bounds how long a probe waits for the database. A prober that waits longer
// considers the node dead.
const probeTimeout = 2 * time.Second

// healthz reports that the process answers, and nothing else.
func (s *apiServer) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, healthzDocument{NodeID: s.Self.NodeID, Status: "ok", Version: s.Self.Version})
}

type healthzDocument struct {
	NodeID  string `json:"node_id"`
	Status  string `json:"status"`
	Version string `json:"version"`
}

type readiness struct {
	Ready    bool     `json:"ready"`
	NodeID   string   `json:"node_id"`
	NotReady []string `json:"not_ready,omitempty"`
}

// UnreadyError is a reason why the node is not ready. Callers without a token may read only
// Public, because Err may name hosts, users and databases.
type UnreadyError struct {
	Public string
	Err    error
}

func (u UnreadyError) Error() string { return u.Err.Error() }

// Unwrap returns the details, which only callers with a token may read.
func (u UnreadyError) Unwrap() error { return u.Err }

func (s *apiServer) readyz(w http.ResponseWriter, r *http.Request) {
	missing := causes(s.readiness.get(r.Context()), s.seesDetails(r))
	status := http.StatusOK
	if len(missing) > 0 {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, readiness{Ready: len(missing) == 0, NodeID: s.Self.NodeID, NotReady: missing})
}

// recent shares one read among probes at about the same time, so that many probes cost as
// much as a few.
type recent[T any] struct {
	read func(context.Context) T

	mu    sync.Mutex
	at    time.Time
	value T
}

// keepRecent is how long a read is shared.
const keepRecent = 100 * time.Millisecond

func newRecent[T any](read func(context.Context) T) *recent[T] { return &recent[T]{read: read} }

// get returns the value. If ctx ends, the read continues for other callers.
func (c *recent[T]) get(ctx context.Context) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < keepRecent {
		return c.value
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	c.value = c.read(ctx)
	c.at = time.Now()
	return c.value
}

// seesDetails reports whether the caller of an open route may see details: it has a token
// of any scope, or none is required.
func (s *guard) seesDetails(r *http.Request) bool {
	if s.Tokens == nil {
		return true
	}
	_, err := s.auth.identify(r)
	return err == nil
}

// causes returns the messages of joined errors.
func causes(err error, detailed bool) []string {
	if err == nil {
		return nil
	}
	if hidden, ok := err.(UnreadyError); ok && !detailed { //nolint:errorlint // only the error itself; the errors that it wraps are handled below
		return []string{hidden.Public}
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{err.Error()}
	}
	var all []string
	for _, e := range joined.Unwrap() {
		all = append(all, causes(e, detailed)...)
	}
	return all
}

// leaderFacts is the body of /leader/{role}. Its first three fields are also sent as
// headers.
type leaderFacts struct {
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
func (s *apiServer) leaderProbe(w http.ResponseWriter, r *http.Request) {
	role := r.PathValue("role")
	if fence, ok := s.Leads(role); ok {
		writeLeaderFacts(w, http.StatusOK, leaderFacts{Role: role, NodeID: s.Self.NodeID, Term: fence.Term, APIURL: s.Self.APIURL, Leads: true})
		return
	}
	facts := leaderFacts{Role: role}
	leaders, err := s.leaders(r.Context())
	i := slices.IndexFunc(leaders, func(l leaderstore.Leader) bool { return l.Role == role })
	switch {
	case err != nil && slices.Contains(s.Roles, role):
		facts.Error = "the database cannot be read"
	case i >= 0:
		facts = factsOf(leaders[i], s.Self)
	case !slices.Contains(s.Roles, role):
		writeProblem(w, http.StatusNotFound, "There is no such role.")
		return
	}
	writeLeaderFacts(w, http.StatusServiceUnavailable, facts)
}

// factsOf describes a row for a node that does not lead. A row that names this node belongs
// to a term that has ended.
func factsOf(l leaderstore.Leader, self Self) leaderFacts {
	facts := leaderFacts{Role: l.Role, Term: l.Term}
	if l.Leads() && l.Incarnation != self.Incarnation {
		facts.NodeID, facts.APIURL = l.NodeID, l.APIURL
	}
	return facts
}

// The headers with the facts.
const (
	leaderNodeHeader = "Forge-Leader-Node"
	leaderTermHeader = "Forge-Leader-Term"
	leaderURLHeader  = "Forge-Leader-Url"
)

func writeLeaderFacts(w http.ResponseWriter, status int, facts leaderFacts) {
	h := w.Header()
	h.Set(leaderNodeHeader, facts.NodeID)
	h.Set(leaderTermHeader, strconv.FormatInt(facts.Term, 10))
	h.Set(leaderURLHeader, facts.APIURL)
	writeJSON(w, status, facts)
}

// leaders reads the roles for probes. It caches them, because many load balancers may probe
// at the same time.
func (s *apiServer) leaders(ctx context.Context) ([]leaderstore.Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	leaders, err := s.lead.get(ctx)
	if err != nil {
		s.logger.WarnContext(ctx, "read leaders for a probe", "error", err)
	}
	return leaders, err
}
