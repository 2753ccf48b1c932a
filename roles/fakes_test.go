package roles_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/watchdog"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

const (
	check   = time.Second
	lease   = 3 * time.Second
	refresh = 750 * time.Millisecond
)

// server is an in-memory fake of the part of PostgreSQL that elections use.
type server struct {
	mu           sync.Mutex
	holders      map[int64]*session
	terms        map[string]int64
	rows         map[string]*session
	sessions     []*session
	resigned     []string
	lockAttempts int
	requests     map[leaderstore.Held]string // target by term
	onRenew      func()                      // called during each renewal
	down         bool
	refuseTerms  bool        // AcquireTerm fails
	notes        []string    // of renewals
	committing   atomic.Bool // the server is still committing the leader's work
}

func newServer() *server {
	return &server{holders: map[int64]*session{}, terms: map[string]int64{}, rows: map[string]*session{}}
}

var errBroken = errors.New("connection broken")

type session struct {
	server  *server
	node    string
	broken  chan struct{}
	changed chan struct{}
	hang    chan struct{} // while open, statements hang
	once    sync.Once
}

func (s *server) open(node string) func(context.Context) (roles.Session, error) {
	return func(context.Context) (roles.Session, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.down {
			return nil, errBroken
		}
		opened := &session{server: s, node: node, broken: make(chan struct{}), changed: make(chan struct{}, 8)}
		s.sessions = append(s.sessions, opened)
		return opened, nil
	}
}

// options returns the options of elections on the server.
func (s *server) options(node string, configs ...roles.RoleConfig) roles.Options {
	return roles.Options{
		NodeID: node, OpenSession: s.open(node), CheckInterval: check, LeaseDuration: lease, RefreshInterval: refresh,
		Roles: configs, Metrics: metrics.New("test"), Logger: slog.New(slog.DiscardHandler),
	}
}

// sever ends every session of a node, like a crash of its backend.
func (s *server) sever(node string) {
	s.mu.Lock()
	sessions := slices.Clone(s.sessions)
	s.mu.Unlock()
	for _, one := range sessions {
		if one.node == node {
			one.Close()
		}
	}
}

// stall makes the node's statements hang, like a network partition.
func (s *server) stall(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessions {
		if one.node == node {
			one.hang = make(chan struct{})
		}
	}
}

// leader returns the node that leads the scheduler role, or "" if there is none.
func (s *server) leader() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if row := s.rows[string(roles.Scheduler)]; row != nil {
		return row.node
	}
	return ""
}

// endings returns the resigned roles with their reasons.
func (s *server) endings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.resigned)
}

func (x *session) enter(ctx context.Context) error {
	x.server.mu.Lock()
	hang := x.hang
	x.server.mu.Unlock()
	if hang != nil {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-x.broken:
		return errBroken
	default:
		return nil
	}
}

func (x *session) TryLocks(ctx context.Context, locks []leaderstore.Lock) ([]string, error) {
	if err := x.enter(ctx); err != nil {
		return nil, err
	}
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	x.server.lockAttempts++
	var won []string
	for _, lock := range locks {
		last := leaderstore.Held{Role: lock.Role, Term: x.server.terms[lock.Role]}
		since := lock.HandedOverTerm > 0 && last.Term > lock.HandedOverTerm
		if lock.OnlyOnRequest && !since && x.server.requests[last] != x.node {
			continue
		}
		if x.server.holders[lock.ID] == nil {
			x.server.holders[lock.ID] = x
			won = append(won, lock.Role)
		}
	}
	return won, nil
}

func (x *session) Unlock(_ context.Context, lock leaderstore.Lock) error {
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	delete(x.server.holders, lock.ID)
	return nil
}

func (*session) ResetIdleTimeout(context.Context) error { return nil }

func (x *session) AcquireTerm(ctx context.Context, role string, _ leaderstore.SessionEnd) (leaderstore.AcquiredTerm, error) {
	if err := x.enter(ctx); err != nil {
		return leaderstore.AcquiredTerm{}, err
	}
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	if x.server.refuseTerms {
		return leaderstore.AcquiredTerm{}, errBroken
	}
	x.server.terms[role]++
	x.server.rows[role] = x
	return leaderstore.AcquiredTerm{Fence: leaderstore.Fence{Role: role, Term: x.server.terms[role], NodeID: x.node}}, nil
}

func (x *session) Renew(ctx context.Context, held []leaderstore.Held) ([]leaderstore.Renewed, error) {
	if err := x.enter(ctx); err != nil {
		return nil, err
	}
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	if x.server.onRenew != nil {
		x.server.onRenew()
	}
	var still []leaderstore.Renewed
	for _, h := range held {
		if x.server.rows[h.Role] == x && x.server.terms[h.Role] == h.Term {
			if h.Note != "" {
				x.server.notes = append(x.server.notes, h.Note)
			}
			wish, wanted := x.server.requests[leaderstore.Held{Role: h.Role, Term: h.Term}]
			still = append(still, leaderstore.Renewed{Role: h.Role, HandOver: wanted, Target: wish})
		}
	}
	return still, nil
}

func (x *session) Resign(ctx context.Context, lock leaderstore.Lock, term int64, reason string) error {
	if x.server.committing.Load() {
		return leaderstore.ErrBusy
	}
	return x.ForceResign(ctx, lock, term, reason)
}

func (x *session) ForceResign(ctx context.Context, lock leaderstore.Lock, _ int64, reason string) error {
	if err := x.enter(ctx); err != nil {
		return err
	}
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	delete(x.server.holders, lock.ID)
	delete(x.server.rows, lock.Role)
	x.server.resigned = append(x.server.resigned, lock.Role+" "+reason)
	for _, other := range x.server.sessions {
		select {
		case other.changed <- struct{}{}:
		default:
		}
	}
	return nil
}

func (x *session) Wait(ctx context.Context) (bool, error) {
	select {
	case <-x.changed:
		return true, nil
	case <-x.broken:
		return false, errBroken
	case <-ctx.Done():
		return false, nil
	}
}

func (x *session) Close() {
	x.once.Do(func() {
		x.server.mu.Lock()
		defer x.server.mu.Unlock()
		close(x.broken)
		for id, holder := range x.server.holders {
			if holder == x {
				delete(x.server.holders, id)
			}
		}
	})
}

// start runs elections. stop ends them and returns the error of Run.
func start(t *testing.T, opts roles.Options) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- roles.NewElections(opts).Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// node runs elections for one role and records whether it works.
type node struct {
	*roles.Elections
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	working bool
	fail    chan error
	hang    chan struct{}
	exit    chan struct{} // closed: the work ends its goroutine
}

func startNode(t *testing.T, s *server, id string) *node {
	t.Helper()
	n := &node{done: make(chan struct{}), fail: make(chan error, 1), hang: make(chan struct{}), exit: make(chan struct{})}
	n.Elections = roles.NewElections(s.options(id, roles.RoleConfig{Role: roles.Scheduler, LockID: 1, Lead: roles.Watched(n.lead)}))
	ctx, stop := context.WithCancel(t.Context())
	n.stop = stop
	go func() {
		defer close(n.done)
		if err := n.Run(ctx); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}()
	t.Cleanup(func() { stop(); <-n.done })
	return n
}

// startPair starts two nodes, of which a leads.
func startPair(t *testing.T) (s *server, a, b *node) {
	t.Helper()
	s = newServer()
	a = startNode(t, s, "a")
	synctest.Wait()
	b = startNode(t, s, "b")
	synctest.Wait()
	return s, a, b
}

func (n *node) lead(ctx context.Context, _ leaderstore.Fence) error {
	n.set(true)
	defer n.set(false)
	for {
		watchdog.Report(ctx)
		select {
		case <-ctx.Done():
			return nil
		case err := <-n.fail:
			return err
		case <-time.After(watchdog.Interval(ctx)):
		case <-n.hang: // ignores its context until the test releases it
			<-n.hang
			return nil
		case <-n.exit:
			n.exit = nil
			runtime.Goexit()
		}
	}
}

func (n *node) set(working bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.working = working
}

func (n *node) works() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.working
}

func working(nodes []*node) int {
	count := 0
	for _, n := range nodes {
		if n.works() {
			count++
		}
	}
	return count
}
