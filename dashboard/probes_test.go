package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forge-scheduler/forge/dashboard/api"
	"github.com/forge-scheduler/forge/dashboard/auth"
	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/internal/dashboardtest"
	"github.com/forge-scheduler/forge/internal/access"
)

func TestLeaderProbe(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		path   string
		alter  func(*dashboardtest.Cluster)
		status int
		node   string
		term   string
		url    string
	}{
		{name: "this node leads", path: "/leader/scheduler", status: 200, node: "node-1", term: "7", url: "http://127.0.0.1:8080"},
		{name: "another leads", path: "/leader/log_compactor", status: 503, node: "node-2", term: "3", url: "http://127.0.0.1:8081"},
		{name: "vacant", path: "/leader/metrics_aggregator", status: 503, term: "0"},
		{name: "unknown role", path: "/leader/emperor", status: 404},
		{name: "leader while the database is away", path: "/leader/scheduler", alter: func(c *dashboardtest.Cluster) { c.Err = errors.New("gone") }, status: 200, node: "node-1", term: "7", url: "http://127.0.0.1:8080"},
		{name: "follower while the database is away", path: "/leader/log_compactor", alter: func(c *dashboardtest.Cluster) { c.Err = errors.New("gone") }, status: 503, term: "0"},
		{name: "lease ran out", path: "/leader/log_compactor", alter: func(c *dashboardtest.Cluster) { c.Leaders[0].LeaseUntil = dashboardtest.Epoch }, status: 503, term: "3"},
		{name: "a row that still names this node after its step-down", path: "/leader/log_compactor", alter: func(c *dashboardtest.Cluster) {
			c.Leaders[0].NodeID, c.Leaders[0].Incarnation = "node-1", dashboardtest.Incarnation
		}, status: 503, term: "3"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := dashboardtest.New()
			if test.alter != nil {
				test.alter(c)
			}
			w := get(t, handlerOf(c), test.path)
			if w.Code != test.status {
				t.Fatalf("status %d, want %d", w.Code, test.status)
			}
			for header, want := range map[string]string{"Forge-Leader-Node": test.node, "Forge-Leader-Term": test.term, "Forge-Leader-Url": test.url} {
				if got := w.Header().Get(header); got != want {
					t.Errorf("%s is %q, want %q", header, got, want)
				}
			}
			if test.status == http.StatusNotFound {
				return
			}
			body := decode[api.LeaderFacts](t, w)
			if body.NodeID != test.node || fmt.Sprint(body.Term) != test.term || body.APIURL != test.url || body.Leads != (test.status == 200) {
				t.Errorf("body %+v differs from the headers", body)
			}
		})
	}
}

func TestReadyzNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	opts := optionsOf(dashboardtest.New())
	opts.Cluster.Ready = func(context.Context) error {
		return errors.Join(errors.New("database: no answer"), errors.New("workers: not started"))
	}
	w := get(t, New(opts), "/readyz")
	body := decode[api.Readiness](t, w)
	if w.Code != http.StatusServiceUnavailable || body.Ready || !slices.Equal(body.NotReady, []string{"database: no answer", "workers: not started"}) {
		t.Errorf("status %d, body %+v", w.Code, body)
	}
}

// Anonymous callers see what is not ready, but not the database's address or login.
func TestReadyzHidesDetailsFromAnonymousCallers(t *testing.T) {
	t.Parallel()
	_, opts := clusterWithTokens()
	detail := errors.New("database: failed to connect to `user=forge database=prod`")
	opts.Cluster.Ready = func(context.Context) error {
		return errors.Join(errors.New("workers: not started"), cluster.UnreadyError{Public: "database: it cannot be reached", Err: detail})
	}
	h := New(opts)
	for token, want := range map[string]string{
		"": "database: it cannot be reached", "expired": "database: it cannot be reached", "viewer": detail.Error(),
	} {
		body := decode[api.Readiness](t, requestAs(t, h, token, "GET", "/readyz"))
		if !slices.Equal(body.NotReady, []string{"workers: not started", want}) {
			t.Errorf("%q reads %q, want %q", token, body.NotReady, want)
		}
	}
	opts.Auth.Tokens = nil // everybody may read everything
	if body := decode[api.Readiness](t, get(t, New(opts), "/readyz")); body.NotReady[1] != detail.Error() {
		t.Errorf("without tokens: %q", body.NotReady)
	}
}

// hangingTokens are those of a database that does not answer.
type hangingTokens struct{ auth.Tokens }

func (hangingTokens) Verify(ctx context.Context, _ string) (access.Holder, error) {
	<-ctx.Done()
	return access.Holder{}, ctx.Err()
}

// A probe with a token takes no longer than one without while the database hangs.
func TestReadyzWithTokenHasTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, opts := clusterWithTokens()
		opts.Auth.Tokens = hangingTokens{}
		opts.Cluster.Ready = func(ctx context.Context) error {
			<-ctx.Done()
			return cluster.UnreadyError{Public: "database: it does not answer", Err: ctx.Err()}
		}
		h, start := New(opts), time.Now()
		w := requestAs(t, h, "viewer", "GET", "/readyz")
		if took := time.Since(start); w.Code != http.StatusServiceUnavailable || took > auth.ProbeTimeout {
			t.Errorf("%d after %v", w.Code, took)
		}
	})
}

// An anonymous caller may read the reason: it names no hosts.
func TestUnreadableDatabaseIsExplained(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Err = errors.New("connection refused to db.internal")
	opts := optionsOf(c)
	opts.Cluster.Outage = func() string { return "it starts, stops or recovers, since 2026-11-27T14:00:00Z (12s)" }
	h := New(opts)
	const want = "The database cannot be read: it starts, stops or recovers, since 2026-11-27T14:00:00Z (12s)."
	for _, path := range []string{"/", "/api/v1/nodes", "/cluster/status"} {
		if w := get(t, h, path); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), want) {
			t.Errorf("GET %s: status %d, body %s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/cluster/health", "/leader/log_compactor"} {
		if w := get(t, h, path); !strings.Contains(w.Body.String(), strings.TrimSuffix(want[1:], ".")) {
			t.Errorf("GET %s: body %s", path, w.Body)
		}
	}
}

func TestReadyzIgnoresLeadership(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Leaders = nil
	if w := get(t, handlerOf(c), "/readyz"); w.Code != http.StatusOK {
		t.Errorf("status %d without a leader, want 200", w.Code)
	}
}

func TestClusterHealth(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		alter  func(*dashboardtest.Cluster)
		status int
		health string
		ready  bool
		leader string
	}{
		{name: "the events tell of a cause", alter: func(c *dashboardtest.Cluster) { c.Causes = []string{"node node-2 is dead"} }, status: 200, health: "degraded", ready: true, leader: "node-1"},
		{name: "no cause", status: 200, health: "healthy", ready: true, leader: "node-1"},
		{name: "no scheduler for a moment", alter: func(c *dashboardtest.Cluster) { c.Leaders[1].LeaseUntil = dashboardtest.Epoch.Add(-time.Second) }, status: 200, health: "healthy"},
		{name: "database away", alter: func(c *dashboardtest.Cluster) { c.Err = errors.New("gone") }, status: 503, health: "degraded", leader: "node-1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := dashboardtest.New()
			if test.alter != nil {
				test.alter(c)
			}
			w := get(t, handlerOf(c), "/cluster/health")
			doc := decode[api.HealthDocument](t, w)
			if w.Code != test.status || doc.Status != test.health || doc.ClusterReady != test.ready || doc.LeaderID != test.leader {
				t.Errorf("status %d, document %+v", w.Code, doc)
			}
			if doc.NodeID != "node-1" || doc.State != "leader" || !doc.IsLeader || doc.Clustering != "enabled" || !doc.Timestamp.Equal(dashboardtest.Epoch) {
				t.Errorf("facts of this node: %+v", doc)
			}
		})
	}
}

func TestClusterLeader(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	h := handlerOf(c)
	doc := decode[api.LeaderDocument](t, get(t, h, "/cluster/leader"))
	if doc.Role != "scheduler" || doc.LeaderID != "node-1" || doc.Term != 7 || doc.Hostname != "alpha" || doc.LeaseRemaining != 3 || doc.ExpiresAt != dashboardtest.Epoch.Add(3*time.Second) {
		t.Errorf("leader %+v", doc)
	}
	for path, status := range map[string]int{
		"/cluster/leader?role=log_compactor":      http.StatusOK,
		"/cluster/leader?role=metrics_aggregator": http.StatusServiceUnavailable,
		"/cluster/leader?role=emperor":            http.StatusNotFound,
	} {
		w := get(t, h, path)
		if w.Code != status {
			t.Errorf("%s: status %d, want %d", path, w.Code, status)
		}
		if status != http.StatusOK && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: content type %q", path, w.Header().Get("Content-Type"))
		}
	}
}

func TestClusterStatusCountsThePresent(t *testing.T) {
	t.Parallel()
	c := dashboardtest.New()
	c.Nodes[1].State = "dead"
	doc := decode[api.StatusDocument](t, get(t, handlerOf(c), "/cluster/status"))
	if doc.ClusterSize != 1 || len(doc.Nodes) != 2 || doc.Nodes[1].IsHealthy || doc.Lease == nil || doc.Lease.Term != 7 {
		t.Errorf("document %+v", doc)
	}
}
