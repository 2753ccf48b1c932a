package roles_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
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

func (s *server) leader(role roles.Role) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if row := s.rows[string(role)]; row != nil {
		return row.node
	}
	return ""
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
			wish, wanted := x.server.wishes[h]
			still = append(still, leaderstore.Renewed{Role: h.Role, HandOver: wanted, Target: wish})
		}
	}
	return still, nil
}

func (x *session) Resign(ctx context.Context, lock leaderstore.Lock, _ int64, reason string) error {
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
	n.Campaign = roles.New(roles.Options{
		NodeID: id, Open: s.open(id), CheckInterval: check, LeaseDuration: lease, RefreshInterval: refresh,
		Contests: []roles.Contest{{Role: roles.Scheduler, LockID: 1, Duty: n.duty}},
		Metrics:  metrics.New("test"), Logger: slog.New(slog.DiscardHandler),
	})
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

func TestOneOfThreeLeads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		nodes := []*node{startNode(t, s, "a"), startNode(t, s, "b"), startNode(t, s, "c")}
		for range 20 {
			time.Sleep(refresh)
			synctest.Wait()
			if n := working(nodes); n != 1 {
				t.Fatalf("%d leaders", n)
			}
		}
		if s.terms["scheduler"] != 1 {
			t.Fatalf("term %d after a calm time", s.terms["scheduler"])
		}
	})
}

func TestResigningLeaderIsSucceededAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		a.stop()
		<-a.done
		synctest.Wait() // no time passes: the standby was told
		if !b.works() || a.works() || s.leader(roles.Scheduler) != "b" {
			t.Fatalf("a works %v, b works %v", a.works(), b.works())
		}
		if !slices.Equal(s.resigned, []string{"scheduler resigned"}) {
			t.Fatalf("resigned: %v", s.resigned)
		}
	})
}

func TestBrokenSessionStopsTheWorkAndElectsAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		s.mu.Lock()
		s.down = true // a cannot come back before b has looked
		s.mu.Unlock()
		s.sever("a")
		synctest.Wait()
		if a.works() {
			t.Fatal("the work goes on without a session")
		}
		time.Sleep(check + check/5)
		synctest.Wait()
		if !b.works() {
			t.Fatal("no successor after a check interval")
		}
	})
}

// A leader whose renewals hang stops itself inside the lease, so before the
// server frees its lock.
func TestTrustEndsBeforeTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := startNode(t, s, "a")
		time.Sleep(10 * refresh)
		synctest.Wait()
		s.stall("a")
		time.Sleep(lease * 4 / 5)
		synctest.Wait()
		if a.works() {
			t.Fatal("the leader works on after its trust window")
		}
		if _, leads := a.Leads(roles.Scheduler); leads {
			t.Fatal("the leader still says that it leads")
		}
	})
}

func TestReplacedTermStopsTheWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := startNode(t, s, "a")
		synctest.Wait()
		s.mu.Lock()
		s.rows["scheduler"], s.down = nil, true
		s.mu.Unlock()
		time.Sleep(refresh + time.Millisecond)
		synctest.Wait()
		if a.works() {
			t.Fatal("the database no longer names a, and a works on")
		}
	})
}

func TestFailedWorkGivesTheRoleToAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a, b := startPair(t)
		a.fail <- errors.New("out of order")
		synctest.Wait()
		if a.works() || !b.works() {
			t.Fatalf("a works %v, b works %v", a.works(), b.works())
		}
		if !slices.Equal(s.resigned, []string{"scheduler stepped_down"}) {
			t.Fatalf("resigned: %v", s.resigned)
		}
	})
}

func TestAloneAfterFailedWorkTriesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := startNode(t, s, "a")
		synctest.Wait()
		a.fail <- errors.New("out of order")
		synctest.Wait()
		time.Sleep(5 * check)
		synctest.Wait()
		if !a.works() || s.terms["scheduler"] != 2 {
			t.Fatalf("works %v in term %d", a.works(), s.terms["scheduler"])
		}
	})
}

func TestDatabaseOutageHealsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		a := startNode(t, s, "a")
		synctest.Wait()
		s.mu.Lock()
		s.down = true
		s.mu.Unlock()
		s.sever("a")
		time.Sleep(time.Minute)
		synctest.Wait()
		if a.works() {
			t.Fatal("works without a database")
		}
		s.mu.Lock()
		s.down = false
		s.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if !a.works() {
			t.Fatal("does not lead a second after the database returned")
		}
	})
}

// A node that stands for nothing still speaks: the server would end a silent
// session, and with it the sign that the node lives.
func TestNodeWithoutRolesKeepsItsSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		campaign := roles.New(roles.Options{
			NodeID: "a", Open: s.open("a"), CheckInterval: check, LeaseDuration: lease, RefreshInterval: refresh,
			Metrics: metrics.New("test"), Logger: slog.New(slog.DiscardHandler),
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- campaign.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		s.mu.Lock()
		spoke := s.tries
		s.mu.Unlock()
		if spoke < 50 {
			t.Errorf("spoke %d times in a minute; want about 60", spoke)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A database that cannot hold an election session is not tried for ever.
func TestUnfitDatabaseEndsTheCampaign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		campaign := roles.New(roles.Options{
			NodeID: "a", CheckInterval: check, LeaseDuration: lease, RefreshInterval: refresh,
			Open:    func(context.Context) (roles.Session, error) { return nil, leaderstore.ErrUnfit },
			Metrics: metrics.New("test"), Logger: slog.New(slog.DiscardHandler),
		})
		if err := campaign.Run(t.Context()); !errors.Is(err, leaderstore.ErrUnfit) {
			t.Errorf("got %v", err)
		}
	})
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
