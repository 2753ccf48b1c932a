package forge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/leaderstore"
	"github.com/forge-scheduler/forge/test/nodes"
)

// testProgram is a node with the custom role billing, and its recorded callbacks.
type testProgram struct {
	id, listen string
	node       *Node
	terms      chan Term
	stop       context.CancelFunc
	done       chan error

	mu     sync.Mutex
	events []string
}

func (p *testProgram) record(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, fmt.Sprintf(format, args...))
}

func (p *testProgram) recorded() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events)
}

// startProgram starts a program. The lease should be long enough for a slow test machine; 0
// is the default.
func startProgram(t *testing.T, url, id, file string, lease time.Duration, opts ...Option) *testProgram {
	t.Helper()
	return startProgramBy(t, "advisory", url, id, file, lease, opts...)
}

// startProgramBy is startProgram with an election strategy.
func startProgramBy(t *testing.T, strategy, url, id, file string, lease time.Duration, opts ...Option) *testProgram {
	t.Helper()
	p := &testProgram{id: id, terms: make(chan Term, 16), done: make(chan error, 1)}
	cfg, err := ParseConfig("test", fmt.Sprintf(`
[database]
url = %q
[node]
id = %q
[http]
listen = %q
[cluster.leader_election]
leader_file = %q
lease_duration = %q
strategy = %q
`, url, id, nodes.AnyPort, file, cmp.Or(lease, 3*time.Second), strategy))
	if err != nil {
		t.Fatal(err)
	}
	work := func(ctx context.Context, term Term) error {
		p.terms <- term
		<-ctx.Done()
		return nil
	}
	p.node, err = New(cfg, append([]Option{
		WithLogger(slog.New(slog.DiscardHandler)),
		WithRole("billing", work, RoleTakeoverDelay(0), RoleMetadata(map[string]string{"by": id})),
		WithCallbacks(p.callbacks()),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() { p.done <- p.node.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-p.done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-p.node.Ready():
		p.listen = strings.TrimPrefix(p.node.self.APIURL, "http://")
	case err := <-p.done:
		p.done <- err
		t.Fatal(err)
	}
	return p
}

// callbacks record the leadership changes of the role billing.
func (p *testProgram) callbacks() Callbacks {
	return Callbacks{
		Elected: func(_ context.Context, role string, term int64) {
			if role == "billing" {
				p.record("elected %d", term)
			}
		},
		Resigned: func(_ context.Context, role string, term int64, reason string) {
			if role == "billing" {
				p.record("ended %d %s", term, reason)
			}
		},
		LeaderChanged: func(_ context.Context, leader Leader) {
			if leader.Role == "billing" && leader.NodeID != "" {
				p.record("%s leads %d", leader.NodeID, leader.Term)
			}
		},
	}
}

func (p *testProgram) term(t *testing.T) Term {
	t.Helper()
	select {
	case term := <-p.terms:
		return term
	case <-time.After(nodes.WaitTimeout):
		t.Fatalf("%s never leads", p.id)
		return Term{}
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	nodes.Eventually(t, nodes.WaitTimeout, what, done)
}

func (p *testProgram) get(path string) (int, string) {
	code, body, _ := nodes.Get(p.listen, path)
	return code, string(body)
}

// A custom role is elected, shown, fenced and handed over like a built-in one.
func TestCustomRoleIsElectedShownAndHandedOver(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	dir := t.TempDir()
	a := startProgram(t, url, "a", filepath.Join(dir, "a-{role}"), time.Minute)
	first := a.term(t)
	b := startProgram(t, url, "b", filepath.Join(dir, "b-{role}"), time.Minute)
	if first.Role != "billing" || first.Number != 1 || first.NodeID != "a" {
		t.Fatalf("first term %+v", first)
	}
	a.requireShownAsLeader(t, pool, b)
	write(t, pool, first, nil)
	if err := first.Publish(t.Context(), map[string]int{"done": 7}); err != nil {
		t.Fatal(err)
	}
	wantMetadata(t, pool, `{"done": 7}`)
	for _, p := range []*testProgram{a, b} {
		wantFile(t, filepath.Join(dir, p.id+"-billing"), "a\n")
	}
	eventually(t, "b is notified that a leads", func() bool { return slices.Contains(b.recorded(), "a leads 1") })
	eventually(t, "b is a deputy of a", func() bool {
		cluster, err := b.node.readCluster(t.Context())
		return err == nil && slices.Contains(cluster.Candidates[a.node.incarnation], b.node.incarnation)
	})

	if err := leaderstore.New(pool).Request(t.Context(), "billing", 1, "b"); err != nil {
		t.Fatal(err)
	}
	second := b.term(t)
	write(t, pool, first, ErrDeposed)
	write(t, pool, second, nil)
	wantMetadata(t, pool, `{"by": "b"}`)
	wantFile(t, filepath.Join(dir, "a-billing"), "b\n")
	for _, p := range []*testProgram{a, b} {
		eventually(t, p.id+" is notified that b leads", func() bool { return slices.Contains(p.recorded(), "b leads 2") })
	}
	b.stop()
	third := a.term(t)
	b.done <- <-b.done
	want := []string{"a leads 1", "elected 2", "b leads 2", "ended 2 resigned"}
	if got := b.recorded(); !sameOrder(got, want) {
		t.Errorf("callbacks of b: %q; want %q", got, want)
	}
	eventually(t, "all callbacks of a are called", func() bool {
		return sameOrder(a.recorded(), []string{"elected 1", "ended 1 transferred", "elected 3"}) && slices.Contains(a.recorded(), "a leads 3")
	})
	if third.Number != 3 {
		t.Errorf("third term %+v", third)
	}
	tenures, err := leaderstore.New(pool).History(t.Context(), "billing", 10)
	if err != nil || len(tenures) != 3 || tenures[1].EndReason != "resigned" || tenures[2].EndReason != "transferred" {
		t.Errorf("history %+v, %v", tenures, err)
	}
}

// requireShownAsLeader checks the leader endpoint, the page and the metrics.
func (p *testProgram) requireShownAsLeader(t *testing.T, pool *pgxpool.Pool, standby *testProgram) {
	t.Helper()
	wantMetadata(t, pool, `{"by": "a"}`)
	for node, want := range map[*testProgram]int{p: http.StatusOK, standby: http.StatusServiceUnavailable} {
		if code, body := node.get("/leader/billing"); code != want || !strings.Contains(body, `"node_id":"a"`) {
			t.Errorf("/leader/billing of %s: %d %s; want %d", node.id, code, body, want)
		}
		if _, body := node.get("/api/v1/leaders"); !strings.Contains(body, `"metadata":{"by":"a"}`) {
			t.Errorf("no metadata in %s", body)
		}
		if _, body := node.get("/"); !strings.Contains(body, "<h3>Billing</h3>") {
			t.Errorf("no card of the role on the page of %s", node.id)
		}
		_, body := node.get("/metrics")
		for _, series := range []string{
			`forge_leader_is_leader{node_id="` + node.id + `",role="billing"}`,
			`forge_leader_failovers_total{node_id="` + node.id + `",role="billing"} 0`,
			`forge_leader_elections_total{node_id="` + node.id + `",result="error",role="billing"}`,
		} {
			if !strings.Contains(body, series) {
				t.Errorf("/metrics of %s lacks %s", node.id, series)
			}
		}
	}
}

// write writes for a term in a transaction of the program.
func write(t *testing.T, pool *pgxpool.Pool, term Term, want error) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if err := term.Check(t.Context(), tx); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `CREATE TABLE IF NOT EXISTS invoices (term bigint)`)
		return err
	})
	if !errors.Is(err, want) {
		t.Errorf("write under term %d: %v; want %v", term.Number, err, want)
	}
}

func wantMetadata(t *testing.T, pool *pgxpool.Pool, want string) {
	t.Helper()
	var got json.RawMessage
	err := pool.QueryRow(t.Context(), `SELECT metadata FROM forge_leaders WHERE role = 'billing'`).Scan(&got)
	if err != nil || string(got) != want {
		t.Errorf("metadata %s, %v; want %s", got, err, want)
	}
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	eventually(t, path+" says "+want, func() bool {
		line, err := os.ReadFile(path)
		return err == nil && string(line) == want
	})
}

// sameOrder reports whether lines contains all of want in order, possibly with other lines
// in between.
func sameOrder(lines, want []string) bool {
	for _, line := range lines {
		if len(want) > 0 && line == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}

// Work that has reported progress once and then stops reporting loses the role.
func TestCustomRoleIsLostWhenWorkStopsReporting(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	startProgram(t, url, "a", "", 0, WithRole("stuck", func(ctx context.Context, term Term) error {
		term.Report()
		<-ctx.Done()
		return nil
	}))
	// A slow machine may have lost the first term already.
	eventually(t, "a term ended as stepped_down", func() bool {
		tenures, err := leaderstore.New(pool).History(t.Context(), "stuck", 100)
		return err == nil && slices.ContainsFunc(tenures, func(tenure leaderstore.Tenure) bool { return tenure.EndReason == "stepped_down" })
	})
}

func TestInvalidCustomRolesAreRejected(t *testing.T) {
	t.Parallel()
	work := func(context.Context, Term) error { return nil }
	for _, test := range []struct {
		name, config string
		opts         []Option
		want         string
	}{
		{"built in", "", []Option{WithRole("scheduler", work)}, "is built in"},
		{"no name", "", []Option{WithRole("Not A Role", work)}, "lower-case letter"},
		{"twice", "", []Option{WithRole("a", work), WithRole("a", work)}, "role a is configured twice"},
		{"one lock", "", []Option{WithRole("a", work, RoleLockID(7)), WithRole("b", work, RoleLockID(7))}, "same lock id 7"},
		{
			"one lock by the file", "[cluster.leader_election.roles.b]\nlock_id = 7\n",
			[]Option{WithRole("a", work, RoleLockID(7)), WithRole("b", work, RoleLockID(8))},
			"same lock id 7",
		},
		{"a built-in one's lock", "[node]\nroles = [\"worker\"]\n", []Option{WithRole("a", work, RoleLockID(0x464F524745_0002))}, "metrics_aggregator"},
		{"metadata", "", []Option{WithRole("a", work, RoleMetadata(func() {}))}, "metadata of role a"},
		{"much metadata", "", []Option{WithRole("a", work, RoleMetadata(strings.Repeat("x", 9000)))}, "at most 8192"},
	} {
		cfg, err := ParseConfig("test", "[database]\nurl = \"postgres://localhost/x\"\n"+test.config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(cfg, test.opts...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %q", test.name, err, test.want)
		}
	}
}

func TestNodeRolesExcludesCustomRoles(t *testing.T) {
	t.Parallel()
	work := func(context.Context, Term) error { return nil }
	for _, test := range []struct {
		config string
		want   []string
	}{
		{"", []string{"worker", "scheduler", "metrics_aggregator", "log_compactor", "billing"}},
		{"[node]\nroles = [\"worker\", \"scheduler\"]\n", []string{"worker", "scheduler"}},
		{"[node]\nroles = [\"billing\"]\n[cluster.leader_election.roles.billing]\n", []string{"billing"}},
		{"[node]\nroles = [\"worker\", \"reports\"]\n[cluster.leader_election.roles.reports]\n", []string{"worker"}}, // a custom role of another program
	} {
		cfg, err := ParseConfig("test", "[database]\nurl = \"postgres://localhost/x\"\n"+test.config)
		if err != nil {
			t.Fatal(err)
		}
		node, err := New(cfg, WithRole("billing", work))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(node.self.Roles, test.want) {
			t.Errorf("%q: takes part in %v; want %v", test.config, node.self.Roles, test.want)
		}
	}
}

func TestCustomRoleTakeoverDelay(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		config string
		opts   []RoleOption
		want   time.Duration
	}{
		{"", nil, 3 * time.Second},
		{"[cluster.leader_election]\nlease_duration = \"9s\"\n", nil, 9 * time.Second},
		{"", []RoleOption{RoleTakeoverDelay(0)}, 0},
		{"[cluster.leader_election.roles.billing]\nlock_id = 5\n", []RoleOption{RoleTakeoverDelay(0)}, 3 * time.Second},
		{"[cluster.leader_election.roles.billing]\ntakeover_delay = \"0s\"\n", nil, 0},
		{"[cluster.leader_election.roles.billing]\ntakeover_delay = \"1m\"\n", nil, time.Minute},
	} {
		cfg, err := ParseConfig("test", "[database]\nurl = \"postgres://localhost/x\"\n"+test.config)
		if err != nil {
			t.Fatal(err)
		}
		node, err := New(cfg, WithRole("billing", nil, test.opts...))
		if err != nil {
			t.Fatal(err)
		}
		if delay := node.customDelay(node.opts.roles[0]); delay != test.want {
			t.Errorf("%q: %v; want %v", test.config, delay, test.want)
		}
	}
}

// Candidates are the live nodes that are candidates for a role of the leader.
func TestCandidatesByLeader(t *testing.T) {
	t.Parallel()
	now := time.Now()
	leads := func(role, incarnation string) leaderstore.Leader {
		return leaderstore.Leader{Role: role, NodeID: "n", Incarnation: incarnation, LeaseUntil: now.Add(time.Second), Now: now}
	}
	node := func(incarnation, state string, silent time.Duration, roles ...string) nodestore.Node {
		return nodestore.Node{Incarnation: incarnation, State: state, Roles: roles, LastHeartbeatAt: now.Add(-silent), Now: now}
	}
	leaders := []leaderstore.Leader{leads("scheduler", "a"), leads("billing", "b"), leads("log_compactor", "b"), {Role: "vacant", Now: now}}
	members := []nodestore.Node{
		node("a", "active", 0, "scheduler", "billing"), node("b", "active", 0, "billing"), node("c", "active", 0, "log_compactor"),
		node("d", "draining", time.Minute, "billing"), node("e", "active", time.Minute, "billing"), node("f", "active", 0, "worker"),
	}
	got := candidatesByLeader(leaders, members, "a", 5*time.Second)
	if want := []string{"a"}; !slices.Equal(got.Candidates["a"], want) {
		t.Errorf("candidates for a: %v; want %v", got.Candidates["a"], want)
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(got.Candidates["b"], want) {
		t.Errorf("candidates for b: %v; want %v", got.Candidates["b"], want)
	}
	if len(got.Candidates) != 2 {
		t.Errorf("candidates for %v", got.Candidates)
	}
	for _, member := range members {
		late := candidatesByLeader(leaders, members, member.Incarnation, 5*time.Second).Late
		if want := member.Incarnation == "e"; late != want {
			t.Errorf("%s is late: %v; want %v", member.Incarnation, late, want)
		}
	}
}
