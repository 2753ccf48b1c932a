package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// epoch is the database's clock in these tests.
var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// fakeCluster is an in-memory Source that counts how often it is read.
type fakeCluster struct {
	mu      sync.Mutex
	reads   int
	err     error
	leaders []leaderstore.Leader
	tenures []leaderstore.Tenure
	nodes   []nodestore.Node
	crons   []cronstore.Cron
	ticks   map[string][]cronstore.Tick
	jobs    []jobstore.Job
	logs    []jobstore.LogChunk
	counts  []jobstore.Count
	events  []eventstore.Event
	changed chan struct{}
	// subscribed is how many subscriptions are open.
	subscribed int
}

// change alters the cluster and tells the page of it.
func (c *fakeCluster) change(alter func(*fakeCluster)) {
	c.mu.Lock()
	alter(c)
	c.mu.Unlock()
	nudge(c.changed)
}

func (c *fakeCluster) readCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads
}

func (c *fakeCluster) openSubscriptions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.subscribed
}

func (c *fakeCluster) Subscribe() (<-chan struct{}, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribed++
	return c.changed, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.subscribed--
	}
}

func read[T any](c *fakeCluster, value func() T) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	if c.err != nil {
		var none T
		return none, c.err
	}
	return value(), nil
}

type (
	fakeLeadership struct{ *fakeCluster }
	fakeNodes      struct{ *fakeCluster }
	fakeCrons      struct{ *fakeCluster }
	fakeJobs       struct{ *fakeCluster }
	fakeEvents     struct{ *fakeCluster }
)

func (f fakeLeadership) Leaders(context.Context) ([]leaderstore.Leader, error) {
	return read(f.fakeCluster, func() []leaderstore.Leader { return append([]leaderstore.Leader(nil), f.leaders...) })
}

func (f fakeLeadership) History(_ context.Context, role string, limit int) ([]leaderstore.Tenure, error) {
	return read(f.fakeCluster, func() []leaderstore.Tenure {
		var own []leaderstore.Tenure
		for _, t := range f.tenures {
			if (role == "" || t.Role == role) && len(own) < limit {
				own = append(own, t)
			}
		}
		return own
	})
}

func (f fakeNodes) List(context.Context) ([]nodestore.Node, error) {
	return read(f.fakeCluster, func() []nodestore.Node { return append([]nodestore.Node(nil), f.nodes...) })
}

func (f fakeCrons) List(context.Context) ([]cronstore.Cron, error) {
	return read(f.fakeCluster, func() []cronstore.Cron { return append([]cronstore.Cron(nil), f.crons...) })
}

func (f fakeCrons) Ticks(_ context.Context, cron string, before time.Time, limit int) ([]cronstore.Tick, error) {
	return read(f.fakeCluster, func() []cronstore.Tick {
		var own []cronstore.Tick
		for _, t := range f.ticks[cron] {
			if (before.IsZero() || t.Tick.Before(before)) && len(own) < limit {
				own = append(own, t)
			}
		}
		return own
	})
}

func (f fakeJobs) List(_ context.Context, filter jobstore.Filter) ([]jobstore.Job, error) {
	return read(f.fakeCluster, func() []jobstore.Job {
		var own []jobstore.Job
		for _, j := range f.jobs {
			fits := (filter.State == "" || j.State == filter.State) && (filter.Kind == "" || j.Kind == filter.Kind) &&
				(filter.Cron == "" || j.Cron == filter.Cron) && (filter.BeforeID == 0 || j.ID < filter.BeforeID)
			if fits && len(own) < filter.Limit {
				own = append(own, j)
			}
		}
		return own
	})
}

func (f fakeJobs) Get(ctx context.Context, id int64) (jobstore.Job, error) {
	jobs, err := f.List(ctx, jobstore.Filter{Limit: maxLimit})
	if err != nil {
		return jobstore.Job{}, err
	}
	for _, j := range jobs {
		if j.ID == id {
			return j, nil
		}
	}
	return jobstore.Job{}, jobstore.ErrNotFound
}

func (f fakeJobs) Logs(_ context.Context, _ int64, attempt, afterSeq int) ([]jobstore.LogChunk, error) {
	return read(f.fakeCluster, func() []jobstore.LogChunk {
		var own []jobstore.LogChunk
		for _, c := range f.logs {
			if c.Attempt == attempt && c.Seq > afterSeq {
				own = append(own, c)
			}
		}
		return own
	})
}

func (f fakeJobs) CountsByQueueAndState(context.Context) ([]jobstore.Count, error) {
	return read(f.fakeCluster, func() []jobstore.Count { return f.counts })
}

func (f fakeEvents) List(_ context.Context, before int64, limit int) ([]eventstore.Event, error) {
	return read(f.fakeCluster, func() []eventstore.Event {
		var own []eventstore.Event
		for _, e := range f.events {
			if (before == 0 || e.ID < before) && len(own) < limit {
				own = append(own, e)
			}
		}
		return own
	})
}

const incarnation = "00000000000000a1"

// newCluster has two nodes, of which node-1 leads the scheduler's role and
// node-2 the compactor's; nobody has ever led the aggregator's.
func newCluster() *fakeCluster {
	exit := 1
	return &fakeCluster{
		changed: make(chan struct{}, 1),
		leaders: []leaderstore.Leader{
			{Role: "log_compactor", NodeID: "node-2", Incarnation: "00000000000000b2", Term: 3, AcquiredAt: epoch.Add(-time.Hour), RenewedAt: epoch, LeaseUntil: epoch.Add(3 * time.Second), APIURL: "http://127.0.0.1:8081", Now: epoch},
			{Role: "scheduler", NodeID: "node-1", Incarnation: incarnation, Term: 7, AcquiredAt: epoch.Add(-time.Minute), RenewedAt: epoch, LeaseUntil: epoch.Add(3 * time.Second), APIURL: "http://127.0.0.1:8080", Now: epoch},
		},
		tenures: []leaderstore.Tenure{
			{Role: "scheduler", Term: 7, NodeID: "node-1", Incarnation: incarnation, AcquiredAt: epoch.Add(-time.Minute), Gap: 8 * time.Millisecond, HasGap: true},
			{Role: "scheduler", Term: 6, NodeID: "node-2", AcquiredAt: epoch.Add(-5 * time.Minute), EndedAt: epoch.Add(-time.Minute - 8*time.Millisecond), EndReason: "crashed"},
			{Role: "log_compactor", Term: 3, NodeID: "node-2", AcquiredAt: epoch.Add(-time.Hour)},
		},
		nodes: []nodestore.Node{
			{NodeID: "node-1", Incarnation: incarnation, Hostname: "alpha", State: nodestore.Active, Version: "v1", APIURL: "http://127.0.0.1:8080", Slots: 50, Running: 3, ConfigHash: "aaaaaaaaaa", LastHeartbeatAt: epoch, Now: epoch},
			{NodeID: "node-2", Incarnation: "00000000000000b2", Hostname: "beta", State: nodestore.Active, Version: "v1", APIURL: "http://127.0.0.1:8081", Slots: 50, ConfigHash: "aaaaaaaaaa", LastHeartbeatAt: epoch, Now: epoch},
		},
		crons: []cronstore.Cron{{
			Name: "backup", Spec: cronstore.Spec{Schedule: "0 2 * * *", Timezone: "UTC", Job: "dump"}, Watermark: epoch, NextTick: epoch.Add(14 * time.Hour),
		}},
		ticks: map[string][]cronstore.Tick{"backup": {
			{Cron: "backup", Tick: epoch.Add(-10 * time.Hour), Verdict: cronstore.Fired, JobID: 42, Term: 7, NodeID: "node-1", RecordedAt: epoch.Add(-10 * time.Hour), LatenessMS: 4.2, Count: 1},
			{Cron: "backup", Tick: epoch.Add(-34 * time.Hour), Verdict: cronstore.SkippedOverlap, Reason: "job 41 is still running", Term: 6, NodeID: "node-2", RecordedAt: epoch.Add(-34 * time.Hour), Count: 1},
		}},
		jobs: []jobstore.Job{
			{
				ID: 42, Kind: "dump", State: "retryable", Queue: "default", Attempt: 1, MaxAttempts: 5, Args: json.RawMessage(`{"keep":14}`), Cron: "backup", NodeID: "node-2", CreatedAt: epoch, ScheduledAt: epoch, AttemptedAt: epoch,
				LastError: "disk full", Attempts: []jobstore.Attempt{{Attempt: 1, NodeID: "node-2", StartedAt: epoch, DurationMS: 812, Outcome: "failed", ExitCode: &exit, Error: "disk full"}},
			},
			{ID: 41, Kind: "dump", State: "completed", Queue: "default", Attempt: 1, MaxAttempts: 5, CreatedAt: epoch, ScheduledAt: epoch, AttemptedAt: epoch, FinalizedAt: epoch.Add(time.Second)},
		},
		logs:   []jobstore.LogChunk{{Attempt: 1, Seq: 1, Stream: "stdout", Chunk: "dumping\n"}},
		counts: []jobstore.Count{{Queue: "default", State: "completed", Jobs: 12345}, {Queue: "default", State: "running", Jobs: 3}, {Queue: "bulk", State: "running", Jobs: 1}},
		events: []eventstore.Event{{ID: 2, At: epoch, Type: eventstore.LeaderElected}, {ID: 1, At: epoch, Type: eventstore.NodeJoined}},
	}
}

var testRoles = []string{"scheduler", "metrics_aggregator", "log_compactor"}

// options serve the cluster as node-1 sees it.
func (c *fakeCluster) options() Options {
	return Options{
		Source:  Source{Leadership: fakeLeadership{c}, Nodes: fakeNodes{c}, Crons: fakeCrons{c}, Jobs: fakeJobs{c}, Counts: fakeJobs{c}, Events: fakeEvents{c}},
		Self:    Self{Cluster: "test", NodeID: "node-1", Incarnation: incarnation, Version: "v1", APIURL: "http://127.0.0.1:8080"},
		Roles:   testRoles,
		Ready:   func(context.Context) error { return nil },
		Changes: c,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("forge_build_info 1\n")) }),
		Now:     func() time.Time { return epoch },
		Leads: func(role string) (leaderstore.Fence, bool) {
			return leaderstore.Fence{Role: role, Term: 7, NodeID: "node-1", Incarnation: incarnation}, role == "scheduler"
		},
		Describe: func(cron cronstore.Cron) string {
			if cron.Spec.Schedule == "0 2 * * *" {
				return "at 02:00 every day"
			}
			return ""
		},
		AllowedHosts: LoopbackHosts(),
	}
}

func (c *fakeCluster) handler() http.Handler { return New(c.options()) }

// get asks as a browser on the same machine does.
func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	return ask(t, h, http.MethodGet, path)
}

func ask(t *testing.T, h http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:8080"+path, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var body T
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("body %q: %v", w.Body, err)
	}
	return body
}
