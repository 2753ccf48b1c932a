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

// probeTimeout bounds what a probe waits for the database: a prober that waits
// longer calls the node dead.
const probeTimeout = 2 * time.Second

// healthz says that the process answers, and nothing about the rest.
func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
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

// UnreadyError is a reason not to be ready of which strangers read Public alone: the rest may
// name hosts, users and databases.
type UnreadyError struct {
	Public string
	Err    error
}

func (u UnreadyError) Error() string { return u.Err.Error() }

// Unwrap returns what only callers with a token read.
func (u UnreadyError) Unwrap() error { return u.Err }

func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	missing := causes(s.readiness.get(r.Context()), s.knows(r))
	status := http.StatusOK
	if len(missing) > 0 {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, readiness{Ready: len(missing) == 0, NodeID: s.Self.NodeID, NotReady: missing})
}

// recent shares one reading among the probes that ask for it at about the same time,
// so that many of them cost what a few do.
type recent[T any] struct {
	read func(context.Context) T

	mu    sync.Mutex
	at    time.Time
	value T
}

// keepRecent is for how long a reading is shared.
const keepRecent = 100 * time.Millisecond

func newRecent[T any](read func(context.Context) T) *recent[T] { return &recent[T]{read: read} }

// get goes on reading for the others when ctx ends.
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

// knows reports whether whoever asks may see details where nobody has to say who they
// are: with any token, or where none is asked for.
func (s *server) knows(r *http.Request) bool {
	if s.Tokens == nil {
		return true
	}
	_, err := s.door.identify(r)
	return err == nil
}

// causes lists the messages of joined errors one by one.
func causes(err error, detailed bool) []string {
	if err == nil {
		return nil
	}
	if hidden, ok := err.(UnreadyError); ok && !detailed { //nolint:errorlint // the error itself: those within it are looked at below
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

// leaderFacts is the body of /leader/{role}; its first three also stand in the
// headers.
type leaderFacts struct {
	Role   string `json:"role"`
	NodeID string `json:"node_id,omitempty"`
	Term   int64  `json:"term"`
	APIURL string `json:"api_url,omitempty"`
	// Leads is true on the node that leads.
	Leads bool   `json:"leads"`
	Error string `json:"error,omitempty"`
}

// leaderProbe is for load balancers: 200 on the node that leads and 503 on all
// others. The leader answers from memory, which is never later than its own
// step-down, so that it is right while the database is away.
func (s *server) leaderProbe(w http.ResponseWriter, r *http.Request) {
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

// factsOf describes a row for a node that does not lead: a row that still names
// this node belongs to a term which is over.
func factsOf(l leaderstore.Leader, self Self) leaderFacts {
	facts := leaderFacts{Role: l.Role, Term: l.Term}
	if l.Leads() && l.Incarnation != self.Incarnation {
		facts.NodeID, facts.APIURL = l.NodeID, l.APIURL
	}
	return facts
}

// The headers that stand beside the facts.
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

// leaders reads the roles for probes, which may come from many balancers at
// once.
func (s *server) leaders(ctx context.Context) ([]leaderstore.Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	leaders, err := s.lead.get(ctx)
	if err != nil {
		s.Logger.WarnContext(ctx, "read leaders for a probe", "error", err)
	}
	return leaders, err
}
