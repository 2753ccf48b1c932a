package roles_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/internal/metrics"
	"github.com/forge-scheduler/forge/internal/progress"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/roles"
)

const (
	check   = time.Second
	lease   = 3 * time.Second
	refresh = 750 * time.Millisecond
)

// server is the part of PostgreSQL that an election sees, in memory.
type server struct {
	mu       sync.Mutex
	holders  map[int64]*session
	terms    map[string]int64
	rows     map[string]*session
	sessions []*session
	resigned []string
	tries    int
	wishes   map[leaderstore.Held]string // target by term
	onRenew  func()                      // called in the midst of a renewal
	down     bool
	notes    []string    // of renewals
	commits  atomic.Bool // it has not ended what the leader's work sent to it
}

func newServer() *server {
	return &server{holders: map[int64]*session{}, terms: map[string]int64{}, rows: map[string]*session{}}
}

var errBroken = errors.New("connection broken")

type session struct {
	server *server
	node   string
	broken chan struct{}
	told   chan struct{}
	hang   chan struct{} // while not nil and open, statements do not return
	once   sync.Once
}

func (s *server) open(node string) func(context.Context) (roles.Session, error) {
	return func(context.Context) (roles.Session, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.down {
			return nil, errBroken
		}
		opened := &session{server: s, node: node, broken: make(chan struct{}), told: make(chan struct{}, 8)}
		s.sessions = append(s.sessions, opened)
		return opened, nil
	}
}

// options are those of a campaign on the server.
func (s *server) options(node string, contests ...roles.Contest) roles.Options {
	return roles.Options{
		NodeID: node, Open: s.open(node), CheckInterval: check, LeaseDuration: lease, RefreshInterval: refresh,
		Contests: contests, Metrics: metrics.New("test"), Logger: slog.New(slog.DiscardHandler),
	}
}

// sever ends every session of a node, as a crash of its backend would.
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

// stall makes the node's statements hang, as a partition would.
func (s *server) stall(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessions {
		if one.node == node {
			one.hang = make(chan struct{})
		}
	}
}

// leader returns the node that leads the scheduler's role; empty: none does.
func (s *server) leader() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if row := s.rows[string(roles.Scheduler)]; row != nil {
		return row.node
	}
	return ""
}

// endings are the roles that were resigned, and why.
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
	x.server.tries++
	var won []string
	for _, lock := range locks {
		last := leaderstore.Held{Role: lock.Role, Term: x.server.terms[lock.Role]}
		since := lock.LeftAt > 0 && last.Term > lock.LeftAt
		if lock.IfAsked && !since && x.server.wishes[last] != x.node {
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

func (*session) Relax(context.Context) error { return nil }

func (x *session) Mint(ctx context.Context, role string, _ leaderstore.End) (leaderstore.Minted, error) {
	if err := x.enter(ctx); err != nil {
		return leaderstore.Minted{}, err
	}
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	x.server.terms[role]++
	x.server.rows[role] = x
	return leaderstore.Minted{Fence: leaderstore.Fence{Role: role, Term: x.server.terms[role], NodeID: x.node}}, nil
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
			wish, wanted := x.server.wishes[leaderstore.Held{Role: h.Role, Term: h.Term}]
			still = append(still, leaderstore.Renewed{Role: h.Role, HandOver: wanted, Target: wish})
		}
	}
	return still, nil
}

func (x *session) Resign(ctx context.Context, lock leaderstore.Lock, term int64, reason string) error {
	if x.server.commits.Load() {
		return leaderstore.ErrBusy
	}
	return x.Vacate(ctx, lock, term, reason)
}

func (x *session) Vacate(ctx context.Context, lock leaderstore.Lock, _ int64, reason string) error {
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
		case other.told <- struct{}{}:
		default:
		}
	}
	return nil
}

func (x *session) Wait(ctx context.Context) (bool, error) {
	select {
	case <-x.told:
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

// start runs a campaign; stop ends it and returns what Run did.
func start(t *testing.T, opts roles.Options) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- roles.New(opts).Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// node is a campaign for one role and the times at which it worked.
type node struct {
	*roles.Campaign
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	working bool
	fail    chan error
	hang    chan struct{}
}

func startNode(t *testing.T, s *server, id string) *node {
	t.Helper()
	n := &node{done: make(chan struct{}), fail: make(chan error, 1), hang: make(chan struct{})}
	n.Campaign = roles.New(s.options(id, roles.Contest{Role: roles.Scheduler, LockID: 1, Duty: n.duty}))
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

// startPair starts two nodes; a leads.
func startPair(t *testing.T) (s *server, a, b *node) {
	t.Helper()
	s = newServer()
	a = startNode(t, s, "a")
	synctest.Wait()
	b = startNode(t, s, "b")
	synctest.Wait()
	return s, a, b
}

func (n *node) duty(ctx context.Context, _ leaderstore.Fence) error {
	n.set(true)
	defer n.set(false)
	for {
		progress.Report(ctx)
		select {
		case <-ctx.Done():
			return nil
		case err := <-n.fail:
			return err
		case <-time.After(progress.Interval(ctx)):
		case <-n.hang: // deaf to everything until the test lets go
			<-n.hang
			return nil
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
