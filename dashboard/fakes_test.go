package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/argschema"
	"github.com/forge-scheduler/forge/internal/compactstore"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/rollupstore"

	"github.com/forge-scheduler/forge/leaderstore"
)

// epoch is the database's clock in these tests.
var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// fakeCluster is an in-memory Source that counts the reads.
type fakeCluster struct {
	mu      sync.Mutex
	reads   int
	err     error
	leaders []leaderstore.Leader
	tenures []leaderstore.Tenure
	nodes   []nodestore.Node
	causes  []string
	hazards []hazards.Hazard
	crons   []cronstore.Cron
	ticks   map[string][]cronstore.Tick
	jobs    []jobstore.Job
	logs    []jobstore.LogChunk
	counts  []jobstore.Count
	events  []eventstore.Event
	passes  []compactstore.Pass
	told    []alerts.Notification
	windows []rollupstore.Row
	rates   rollupstore.Rates
	// ratesRead is how often they were read.
	ratesRead int
	asked     rollupstore.Query
	added     rollupstore.SumQuery
	// scopes are the scopes of the valid tokens.
	scopes map[string]access.Scope
	// ids are the ids of these tokens.
	ids map[string]int64
	// audit is the audit log.
	audit []access.AuditEntry
	// done is what operators have requested.
	done    []string
	changed chan struct{}
	// subscribed is the number of open subscriptions.
	subscribed int
	settings   map[string]any
	// hostile puts an attack into every text.
	hostile bool
}

// change modifies the cluster and notifies the pages.
func (c *fakeCluster) change(alter func(*fakeCluster)) {
	c.mu.Lock()
	alter(c)
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
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
	if c.hostile {
		return poisoned(value()), nil
	}
	return value(), nil
}

type (
	fakeLeadership struct{ *fakeCluster }
	fakeNodes      struct{ *fakeCluster }
	fakeHealth     struct{ *fakeCluster }
	fakeCrons      struct{ *fakeCluster }
	fakeJobs       struct{ *fakeCluster }
	fakeEvents     struct{ *fakeCluster }
	fakeCompaction struct{ *fakeCluster }
	fakeQueues     struct{ *fakeCluster }
)

func (f fakeLeadership) Leaders(context.Context) ([]leaderstore.Leader, error) {
	return read(f.fakeCluster, func() []leaderstore.Leader { return append([]leaderstore.Leader(nil), f.leaders...) })
}

func (f fakeLeadership) History(ctx context.Context, role string, limit int) ([]leaderstore.Tenure, error) {
	return f.HistoryAfter(ctx, role, leaderstore.Cursor{}, limit)
}

// HistoryAfter returns the tenures in the order of the slice.
func (f fakeLeadership) HistoryAfter(_ context.Context, role string, after leaderstore.Cursor, limit int) ([]leaderstore.Tenure, error) {
	begun := after.AcquiredAt.IsZero()
	return read(f.fakeCluster, func() []leaderstore.Tenure {
		var own []leaderstore.Tenure
		for _, t := range f.tenures {
			if begun && (role == "" || t.Role == role) && len(own) < limit {
				own = append(own, t)
			}
			begun = begun || t.AcquiredAt.Equal(after.AcquiredAt) && t.Role == after.Role
		}
		return own
	})
}

func (f fakeLeadership) Rates(context.Context) (rollupstore.Rates, error) {
	return read(f.fakeCluster, func() rollupstore.Rates {
		f.ratesRead++
		return f.rates
	})
}

func (f fakeNodes) List(context.Context) ([]nodestore.Node, error) {
	return read(f.fakeCluster, func() []nodestore.Node {
		nodes := append([]nodestore.Node(nil), f.nodes...)
		for i := range nodes { // no column is null
			n := &nodes[i]
			n.Capabilities, n.Tags, n.Kinds, n.Queues = []string{}, map[string]string{}, []string{}, map[string]int{}
		}
		return nodes
	})
}

func (f fakeHealth) Causes(context.Context) ([]string, error) {
	return read(f.fakeCluster, func() []string { return f.causes })
}

func (f fakeHealth) Hazards(context.Context) ([]hazards.Hazard, error) {
	return read(f.fakeCluster, func() []hazards.Hazard { return f.hazards })
}

func (f fakeCrons) List(context.Context) ([]cronstore.Cron, error) {
	return read(f.fakeCluster, func() []cronstore.Cron { return append([]cronstore.Cron(nil), f.crons...) })
}

func (f fakeCrons) Get(ctx context.Context, name string) (cronstore.Cron, error) {
	crons, err := f.List(ctx)
	for _, c := range crons {
		if c.Name == name {
			return c, nil
		}
	}
	if err == nil {
		err = cronstore.ErrNotFound
	}
	return cronstore.Cron{}, err
}

func (f fakeCrons) Why(ctx context.Context, name string, tick time.Time) (explain.Explanation, error) {
	cron, err := f.Get(ctx, name)
	if err != nil {
		return explain.Explanation{}, err
	}
	return explain.Explain(explain.Facts{Cron: cron, Tick: tick, Now: epoch})
}

func (f fakeCrons) Notifications(context.Context, string, []time.Time) ([]alerts.Notification, error) {
	return read(f.fakeCluster, func() []alerts.Notification { return f.told })
}

// fakeOperator records what it is requested to do.
type fakeOperator struct{ *fakeCluster }

func (f fakeOperator) note(cron, what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if cron != "backup" {
		return cronstore.ErrNotFound
	}
	f.done = append(f.done, what)
	return nil
}

func (f fakeOperator) Pause(_ context.Context, cron, by string) (cronstore.Cron, bool, error) {
	return cronstore.Cron{Name: cron, PausedAt: epoch}, true, f.note(cron, "pause by "+by)
}

func (f fakeOperator) Resume(_ context.Context, cron, by string) (cronstore.Cron, bool, error) {
	return cronstore.Cron{Name: cron}, false, f.note(cron, "resume by "+by)
}

func (f fakeOperator) Trigger(_ context.Context, t cronstore.Trigger) (cronstore.Tick, error) {
	row := cronstore.Tick{Cron: t.Cron, Tick: t.At, JobID: 43, Verdict: cronstore.Triggered}
	switch {
	case t.At.After(epoch):
		return row, cronstore.ErrFuture
	case t.At.Equal(epoch.Add(-10 * time.Hour)):
		row.JobID, row.Verdict = 42, cronstore.Fired
		return row, cronstore.ErrTaken
	case !t.At.IsZero() && t.At.Minute() != 0:
		return row, cronstore.ErrNotDue
	}
	return row, f.note(t.Cron, fmt.Sprintf("trigger %s %s by %s", t.At.Format(time.DateTime), t.Args, t.By))
}

func (f fakeOperator) BackfillTicks(_ context.Context, span cronstore.Span) (cronstore.Backfill, error) {
	return cronstore.Backfill{Cron: span.Cron, Ticks: []time.Time{span.From}, Left: 2, More: true},
		f.note(span.Cron, fmt.Sprintf("plan %s to %s at most %d", span.From.UTC().Format(time.DateTime), span.To.UTC().Format(time.DateTime), span.Limit))
}

func (f fakeOperator) Backfill(_ context.Context, b cronstore.Backfill, by string, _ func(int)) (int, error) {
	return len(b.Ticks), f.note(b.Cron, "backfill by "+by)
}

// Act finds the jobs of the cluster, and changes none.
func (f fakeOperator) Act(ctx context.Context, order jobstore.Order, ids []int64) ([]jobstore.Change, error) {
	var changes []jobstore.Change
	for _, id := range ids {
		job, err := fakeJobs(f).Get(ctx, id)
		switch change := (jobstore.Change{ID: id, Kind: job.Kind, Was: job.State, State: "changed", Refused: order.Action.Refuses(job.State)}); {
		case errors.Is(err, jobstore.ErrNotFound):
			changes = append(changes, jobstore.Change{ID: id, Missing: true})
		case err != nil:
			return nil, err
		default:
			changes = append(changes, change)
			if change.Refused == "" {
				_ = f.note("backup", fmt.Sprintf("%s job %d by %s", order.Action, id, order.By))
			}
		}
	}
	return changes, nil
}

func (f fakeOperator) CountMatching(_ context.Context, action jobstore.Action, filter jobstore.Filter) (jobstore.Matching, error) {
	if filter.Queue == "vast" {
		return jobstore.Matching{Jobs: 20_001}, nil
	}
	return jobstore.Matching{Jobs: 3, UpTo: 42}, f.note("backup", fmt.Sprintf("plan to %s %s", action, filter.Kind))
}

func (f fakeOperator) ActOnAll(_ context.Context, order jobstore.Order, filter jobstore.Filter, counted jobstore.Matching) (int, error) {
	return int(counted.Jobs) - 1, f.note("backup", fmt.Sprintf("%s all %s to %d by %s", order.Action, filter.Kind, counted.UpTo, order.By))
}

func (f fakeOperator) Kinds(context.Context) (live, known []string, err error) {
	if f.hostile {
		return []string{attack}, []string{attack}, nil
	}
	return []string{"backup", "dump"}, []string{"backup", "dump", "old"}, nil
}

// Fields returns the arguments of the kind dump.
func (f fakeOperator) Fields(_ context.Context, kind string) ([]argschema.Field, error) {
	if f.hostile {
		return poisoned([]argschema.Field{{Name: "table", Title: "t", Types: "string", Default: `"x"`, Description: "d"}, {Name: "speed", Values: []string{`"slow"`}}}), nil
	}
	if kind != "dump" {
		return nil, nil
	}
	return []argschema.Field{{Name: "table", Types: "string", Required: true}, {Name: "speed", Values: []string{`"slow"`}, Default: `"slow"`, Description: "How <fast>."}}, nil
}

// Enqueue returns a duplicate for the unique key "taken".
func (f fakeOperator) Enqueue(_ context.Context, job jobstore.NewJob, ownUnique bool, by string) (jobstore.Enqueued, error) {
	switch job.Unique {
	case "misfit":
		return jobstore.Enqueued{}, config.SchemaError{{Path: "args.table", Message: "missing"}}
	case "taken":
		return jobstore.Enqueued{ID: 42, Kind: job.Kind, Existing: true, State: "retryable", Queue: "default"}, nil
	}
	said := fmt.Sprintf("enqueue %s %s %s %d %s by %s", job.Kind, job.Args, job.Queue, job.Priority, utc(job.ScheduledAt), by)
	if ownUnique {
		said += fmt.Sprintf(", unique %q %+v", job.Unique, job.UniqueBy)
	}
	return jobstore.Enqueued{ID: 42, Kind: job.Kind, State: "available", Queue: "default"}, f.note("backup", said)
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

func (f fakeQueues) Queues(context.Context) ([]jobstore.Queue, error) {
	return read(f.fakeCluster, func() []jobstore.Queue {
		return []jobstore.Queue{
			{Name: "bulk", PausedAt: epoch.Add(-time.Hour), Available: 7, Scheduled: 4, OldestAt: epoch.Add(-90 * time.Second), WaitSeconds: 90},
			{Name: "default", Running: 2, GlobalLimit: 3},
		}
	})
}

func (f fakeQueues) Usages(context.Context) ([]jobstore.Usage, error) {
	return read(f.fakeCluster, func() []jobstore.Usage {
		return []jobstore.Usage{{Limit: jobstore.Limit{Scope: "job", Name: "dump", Most: 9}, Running: 2, Available: 5}}
	})
}

func (f fakeOperator) PauseQueue(_ context.Context, queue, by string) (time.Time, bool, error) {
	return epoch, true, f.noteQueue(queue, "pause queue by "+by)
}

func (f fakeOperator) ResumeQueue(_ context.Context, queue, by string) (time.Time, bool, error) {
	return time.Time{}, false, f.noteQueue(queue, "resume queue by "+by)
}

func (f fakeOperator) noteQueue(queue, what string) error {
	if queue == "nobody" {
		return jobstore.ErrNoQueue
	}
	return f.note("backup", what)
}

func (f fakeCompaction) Status(_ context.Context, limit int) (compactstore.Status, error) {
	return read(f.fakeCluster, func() compactstore.Status {
		return compactstore.Status{Passes: f.passes[:min(limit, len(f.passes))], Tables: []compactstore.Table{{Name: "river_job", Bytes: 8192}}}
	})
}

const incarnation = "00000000000000a1"

// newCluster has two nodes. node-1 leads the scheduler role and node-2 the compactor role.
// The aggregator role has never had a leader.
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
			{NodeID: "node-1", Incarnation: incarnation, Hostname: "alpha", Roles: testRoles, State: nodestore.Active, Version: "v1", APIURL: "http://127.0.0.1:8080", Slots: 50, Running: 3, ConfigHash: "aaaaaaaaaa", LastHeartbeatAt: epoch, ReportedAt: epoch, Reporting: true, Now: epoch},
			{NodeID: "node-2", Incarnation: "00000000000000b2", Hostname: "beta", Roles: testRoles, State: nodestore.Active, Version: "v1", APIURL: "http://127.0.0.1:8081", Slots: 50, ConfigHash: "aaaaaaaaaa", LastHeartbeatAt: epoch, ReportedAt: epoch, Reporting: true, Now: epoch},
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
		settings: map[string]any{
			"cluster": map[string]any{"leader_election": map[string]any{"lease_duration": "3s"}},
			"node":    map[string]any{"roles": []any{"worker", "scheduler"}},
			"crons":   []any{map[string]any{"name": "pulse", "schedule": "@every 1s"}, map[string]any{"name": "other"}},
		},
		rates: rollupstore.Rates{
			Renewals:   map[string]rollupstore.Rate{"scheduler": {Succeeded: 2398, Attempts: 2400, Since: epoch.Add(-time.Hour)}},
			Heartbeats: map[string]rollupstore.Rate{"node-1": {Succeeded: 10800, Attempts: 10800, Since: epoch.Add(-3 * time.Hour)}},
		},
		passes: []compactstore.Pass{{NodeID: "node-2", Chunks: 9, Removed: map[string]int64{}, Failed: map[string]string{}}},
		events: []eventstore.Event{{ID: 2, At: epoch, Type: eventstore.LeaderElected}, {ID: 1, At: epoch, Type: eventstore.NodeJoined}},
	}
}

var testRoles = []string{"scheduler", "metrics_aggregator", "log_compactor"}

// options are the options with which node-1 serves the cluster.
func optionsOf(c *fakeCluster) Options {
	return Options{
		Cluster: ClusterOptions{
			Source:  Source{Leadership: fakeLeadership{c}, Nodes: fakeNodes{c}, Health: fakeHealth{c}, Crons: fakeCrons{c}, Explain: fakeCrons{c}, Jobs: fakeJobs{c}, Counts: fakeJobs{c}, Queues: fakeQueues{c}, Dead: fakeDead{c}, Events: fakeEvents{c}, History: fakeHistory{c}, Alerts: fakeAlerts{c}, Compaction: fakeCompaction{c}},
			Self:    Self{Cluster: "test", NodeID: "node-1", Incarnation: incarnation, Version: "v1", APIURL: "http://127.0.0.1:8080"},
			Roles:   testRoles,
			Ready:   func(context.Context) error { return nil },
			CronOps: fakeOperator{c}, CronRunner: fakeOperator{c}, JobOps: fakeOperator{c}, Enqueuer: fakeOperator{c},
			QueueOps: fakeOperator{c}, DeadLetterOps: fakeDead{c}, RoleOps: fakeOperator{c}, Silencer: fakeAlerts{c},
			Settings:     func() map[string]any { return c.settings },
			Now:          func() time.Time { return epoch },
			CountTimeout: time.Minute, // the count takes no time here
		},
		Auth: AuthOptions{Audit: fakeAudit{c}, AllowedHosts: LoopbackHosts()},
		API: APIOptions{
			Leads: func(role string) (leaderstore.Fence, bool) {
				return leaderstore.Fence{Role: role, Term: 7, NodeID: "node-1", Incarnation: incarnation}, role == "scheduler"
			},
			File: fakeFile{c}, TokenKeeper: fakeKeeper{c},
			Doctor: func(context.Context) ([]Finding, error) {
				return []Finding{{Check: "pooler", Status: "ok", Detail: "there is none"}}, c.err
			},
			Metrics: fakeMetrics,
			ClusterMetrics: func(context.Context) (http.Handler, error) {
				return read(c, func() http.Handler { return fakeMetrics })
			},
		},
		Pages: PageOptions{Changes: c},
	}
}

var fakeMetrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("forge_build_info 1\n"))
})

func handlerOf(c *fakeCluster) http.Handler { return New(optionsOf(c)) }

func pagesOf(c *fakeCluster) *pageServer { return makeServer(optionsOf(c)).pages }

func pageHandlerOf(c *fakeCluster) http.Handler { return handlerOf(c) }

// plainGet sends a GET like a browser on the same machine.
func plainGet(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8080"+path, nil))
	return w
}

// get sends a GET like a browser on the same machine and compares the answer with the
// OpenAPI document.
func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	return ask(t, h, http.MethodGet, path)
}

func ask(t *testing.T, h http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:8080"+path, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	checkDocumented(t, r, w)
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

type fakeHistory struct{ *fakeCluster }

func (c fakeHistory) Range(_ context.Context, q rollupstore.Query) ([]rollupstore.Row, error) {
	return read(c.fakeCluster, func() []rollupstore.Row {
		c.asked = q
		var own []rollupstore.Row
		for _, row := range c.windows {
			if row.Metric == q.Metric {
				own = append(own, row)
			}
		}
		return own
	})
}

func (c fakeHistory) Sums(_ context.Context, q rollupstore.SumQuery) ([]rollupstore.Sum, error) {
	return read(c.fakeCluster, func() []rollupstore.Sum {
		c.added = q
		return sumWindows(c.windows, q)
	})
}

// sumWindows adds windows one by one.
func sumWindows(rows []rollupstore.Row, q rollupstore.SumQuery) (sums []rollupstore.Sum) {
	windows := map[[2]any]map[time.Time]bool{}
	for _, row := range rows {
		if row.Metric != q.Metric || row.At.Before(q.From) || !row.At.Before(q.To) {
			continue
		}
		at := q.From.Add(row.At.Sub(q.From) / q.Point * q.Point)
		i := slices.IndexFunc(sums, func(s rollupstore.Sum) bool { return s.At.Equal(at) && s.Label == row.Labels[q.Label] })
		if i < 0 {
			i = len(sums)
			sums = append(sums, rollupstore.Sum{At: at, Label: row.Labels[q.Label]})
		}
		of, sum := [2]any{at, row.Labels[q.Label]}, &sums[i]
		if windows[of] == nil {
			windows[of] = map[time.Time]bool{}
		}
		windows[of][row.At] = true
		sum.Value, sum.Windows = sum.Value+row.Value, len(windows[of])
		if row.At.After(sum.Newest) {
			sum.Newest = row.At
		}
		sum.Histogram = sum.Histogram.Plus(row.Histogram)
	}
	return sums
}
