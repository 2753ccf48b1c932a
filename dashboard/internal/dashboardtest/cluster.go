package dashboardtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forge-scheduler/forge/internal/access"
	"github.com/forge-scheduler/forge/internal/activity"
	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/compactor"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/hazards"
	"github.com/forge-scheduler/forge/internal/incident"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/leaderstore"
)

func (f Events) Find(_ context.Context, filter eventstore.Filter) ([]eventstore.Event, error) {
	return Read(f.Cluster, func() []eventstore.Event {
		var own []eventstore.Event
		events := slices.Clone(f.Events)
		if filter.Oldest {
			slices.Reverse(events)
		}
		for _, e := range events {
			fits := (filter.Before == 0 || e.ID < filter.Before) && e.ID > filter.After && (len(filter.Types) == 0 || slices.Contains(filter.Types, e.Type)) &&
				(filter.From.IsZero() || !e.At.Before(filter.From)) && (filter.To.IsZero() || e.At.Before(filter.To))
			if fits && len(own) < filter.Limit {
				own = append(own, e)
			}
		}
		return own
	})
}

func (f Events) CheckTypes(_ context.Context, types []string) error {
	if slices.Contains(types, "nothing") {
		return &eventstore.UnknownTypeError{Type: "nothing", Known: []string{"this", "that"}}
	}
	return nil
}

// Find returns the newest entries of both logs, whatever the filter.
func (f Activity) Find(_ context.Context, q activity.Query) (activity.Page, error) {
	entries, err := Read(f.Cluster, func() (all []activity.Entry) {
		f.Asks = append(f.Asks, q)
		for _, e := range f.Events {
			all = append(all, activity.Entry{Log: activity.Events, ID: e.ID, At: e.At, Type: e.Type, NodeID: e.NodeID, Role: e.Role, Term: e.Term, Data: e.Data})
		}
		for _, e := range f.Audit {
			if !q.NoAudit {
				all = append(all, activity.Entry{Log: activity.Audit, ID: e.ID, At: e.At, Type: e.Action, By: e.Actor, Source: e.Source, Object: e.Object, Outcome: e.Outcome, Detail: e.Detail})
			}
		}
		return all[:min(len(all), q.Limit)]
	})
	return activity.Page{Entries: entries}, err
}

// Follow emits the entries that Find returns, and no others.
func (f Activity) Follow(ctx context.Context, q activity.Query, emit func([]activity.Entry) error) error {
	page, err := f.Find(ctx, q)
	if err == nil {
		err = emit(page.Entries)
	}
	if err == nil {
		<-ctx.Done()
		err = ctx.Err()
	}
	return err
}

// AuditLines returns the audit log, one line for each entry.
func (c *Cluster) AuditLines() (lines []string) {
	for _, e := range c.Audit {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s from %s: %s %s: %s %s", e.Actor, e.Source, e.Action, e.Object, e.Outcome, e.Detail)))
	}
	return lines
}

// Now is the right edge of a drawing that was made a moment earlier.
var Now = Epoch.Truncate(time.Second).Add(-time.Second)

// Epoch is the database's clock in these tests.
var Epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Cluster is an in-memory Source that counts the reads.
type Cluster struct {
	Mu      sync.Mutex
	reads   int
	Err     error
	Leaders []leaderstore.Leader
	Tenures []leaderstore.Tenure
	Nodes   []nodestore.Node
	Causes  []string
	Hazards []hazards.Hazard
	Crons   []cronstore.Cron
	Ticks   map[string][]cronstore.Tick
	Jobs    []jobstore.Job
	Logs    []jobstore.LogChunk
	counts  []jobstore.Count
	Events  []eventstore.Event
	// Asks are the queries of the activity.
	Asks    []activity.Query
	Passes  []compactor.Pass
	Told    []alerts.Notification
	Windows []aggregator.Row
	Shares  []aggregator.SharePoint
	// Divided is the query of Shares.
	Divided aggregator.ShareQuery
	rates   aggregator.Rates
	// RatesRead is how often they were read.
	RatesRead int
	Asked     aggregator.Query
	Added     aggregator.SumQuery
	// Scopes are the scopes of the valid tokens.
	Scopes map[string]access.Scope
	// Ids are the ids of these tokens.
	Ids map[string]int64
	// Audit is the audit log.
	Audit []access.AuditEntry
	// Done is what operators have requested.
	Done    []string
	changed chan struct{}
	// subscribed is the number of open subscriptions.
	subscribed int
	Settings   map[string]any
	// Hostile puts an attack into every text.
	Hostile bool
	// Incident replaces AnIncident as the report on the scheduler's seventh term.
	Incident *incident.Incident
}

// Change modifies the cluster and notifies the pages.
func (c *Cluster) Change(alter func(*Cluster)) {
	c.Mu.Lock()
	alter(c)
	c.Mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *Cluster) ReadCount() int {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.reads
}

func (c *Cluster) OpenSubscriptions() int {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	return c.subscribed
}

func (c *Cluster) Subscribe() (<-chan struct{}, func()) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.subscribed++
	return c.changed, func() {
		c.Mu.Lock()
		defer c.Mu.Unlock()
		c.subscribed--
	}
}

func Read[T any](c *Cluster, value func() T) (T, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.reads++
	if c.Err != nil {
		var none T
		return none, c.Err
	}
	if c.Hostile {
		return poisoned(value()), nil
	}
	return value(), nil
}

type (
	Leadership struct{ *Cluster }
	Nodes      struct{ *Cluster }
	Health     struct{ *Cluster }
	Crons      struct{ *Cluster }
	Jobs       struct{ *Cluster }
	Events     struct{ *Cluster }
	Activity   struct{ *Cluster }
	Compaction struct{ *Cluster }
	Queues     struct{ *Cluster }
)

func (f Leadership) Leaders(context.Context) ([]leaderstore.Leader, error) {
	return Read(f.Cluster, func() []leaderstore.Leader { return append([]leaderstore.Leader(nil), f.Cluster.Leaders...) })
}

func (f Leadership) History(ctx context.Context, role string, limit int) ([]leaderstore.Tenure, error) {
	return f.Tenures(ctx, leaderstore.TenureFilter{Role: role, Limit: limit})
}

// Tenures returns the tenures in the order of the slice.
func (f Leadership) Tenures(_ context.Context, filter leaderstore.TenureFilter) ([]leaderstore.Tenure, error) {
	begun := filter.After.AcquiredAt.IsZero()
	return Read(f.Cluster, func() []leaderstore.Tenure {
		var own []leaderstore.Tenure
		for _, t := range f.Cluster.Tenures {
			over := !filter.From.IsZero() && !t.EndedAt.IsZero() && !t.EndedAt.After(filter.From)
			later := !filter.To.IsZero() && !t.AcquiredAt.Add(-t.Gap).Before(filter.To)
			if begun && (filter.Role == "" || t.Role == filter.Role) && !over && !later && len(own) < filter.Limit {
				own = append(own, t)
			}
			begun = begun || t.AcquiredAt.Equal(filter.After.AcquiredAt) && t.Role == filter.After.Role
		}
		return own
	})
}

func (f Leadership) LedAt(_ context.Context, at time.Time) ([]leaderstore.LedAt, error) {
	return Read(f.Cluster, func() []leaderstore.LedAt {
		return leaderstore.FindLedAt(f.Cluster.Leaders, f.Cluster.Tenures, at)
	})
}

func (f Leadership) Rates(context.Context) (aggregator.Rates, error) {
	return Read(f.Cluster, func() aggregator.Rates {
		f.RatesRead++
		return f.rates
	})
}

func (f Nodes) List(context.Context) ([]nodestore.Node, error) {
	return Read(f.Cluster, func() []nodestore.Node {
		nodes := append([]nodestore.Node(nil), f.Nodes...)
		for i := range nodes { // no column is null
			n := &nodes[i]
			n.Kinds, n.Queues = []string{}, map[string]int{}
			if n.Capabilities == nil {
				n.Capabilities = []string{}
			}
			if n.Tags == nil {
				n.Tags = map[string]string{}
			}
		}
		return nodes
	})
}

func (f Health) Causes(context.Context) ([]string, error) {
	return Read(f.Cluster, func() []string { return f.Cluster.Causes })
}

func (f Health) Hazards(context.Context) ([]hazards.Hazard, error) {
	return Read(f.Cluster, func() []hazards.Hazard { return f.Cluster.Hazards })
}

func (f Queues) Usages(context.Context) ([]jobstore.Usage, error) {
	return Read(f.Cluster, func() []jobstore.Usage {
		return []jobstore.Usage{{Limit: jobstore.Limit{Scope: "job", Name: "dump", Most: 9}, Running: 2, Available: 5}, {Limit: jobstore.Limit{Scope: "queue", Name: "default", Most: 2, Key: "args.tenant"}, Running: 4}, {
			Limit: jobstore.Limit{Scope: "queue", Name: "default", Most: 100, Per: time.Minute, Burst: 5}, Window: "1m", Started: new(int64(7)),
		}}
	})
}

func (f Compaction) Status(_ context.Context, limit int) (compactor.Status, error) {
	return Read(f.Cluster, func() compactor.Status {
		return compactor.Status{Passes: f.Passes[:min(limit, len(f.Passes))], Tables: []compactor.Table{{Name: "river_job", Bytes: 8192}}}
	})
}

const Incarnation = "00000000000000a1"

// New has two nodes. node-1 leads the scheduler role and node-2 the compactor role.
// The aggregator role has never had a leader.
func New() *Cluster {
	exit := 1
	return &Cluster{
		changed: make(chan struct{}, 1),
		Leaders: []leaderstore.Leader{
			{Role: "log_compactor", NodeID: "node-2", Incarnation: "00000000000000b2", Term: 3, AcquiredAt: Epoch.Add(-time.Hour), RenewedAt: Epoch, LeaseUntil: Epoch.Add(3 * time.Second), APIURL: "http://127.0.0.1:8081", Now: Epoch},
			{Role: "scheduler", NodeID: "node-1", Incarnation: Incarnation, Term: 7, AcquiredAt: Epoch.Add(-time.Minute), RenewedAt: Epoch, LeaseUntil: Epoch.Add(3 * time.Second), APIURL: "http://127.0.0.1:8080", Now: Epoch},
		},
		Tenures: []leaderstore.Tenure{
			{Role: "scheduler", Term: 7, NodeID: "node-1", Incarnation: Incarnation, AcquiredAt: Epoch.Add(-time.Minute), Gap: 8 * time.Millisecond, HasGap: true},
			{Role: "scheduler", Term: 6, NodeID: "node-2", AcquiredAt: Epoch.Add(-5 * time.Minute), EndedAt: Epoch.Add(-time.Minute - 8*time.Millisecond), EndReason: "crashed"},
			{Role: "log_compactor", Term: 3, NodeID: "node-2", AcquiredAt: Epoch.Add(-time.Hour)},
		},
		Nodes: []nodestore.Node{
			{NodeID: "node-1", Incarnation: Incarnation, Hostname: "alpha", Roles: TestRoles, State: nodestore.Active, Version: "v1", APIURL: "http://127.0.0.1:8080", Slots: 50, Running: 3, ConfigHash: "aaaaaaaaaa", LastHeartbeatAt: Epoch, ReportedAt: Epoch, Reporting: true, Now: Epoch},
			{NodeID: "node-2", Incarnation: "00000000000000b2", Hostname: "beta", Roles: TestRoles, State: nodestore.Active, Version: "v1", APIURL: "http://127.0.0.1:8081", Slots: 50, ConfigHash: "aaaaaaaaaa", LastHeartbeatAt: Epoch, ReportedAt: Epoch, Reporting: true, Now: Epoch},
		},
		Crons: []cronstore.Cron{{
			Name: "backup", Spec: cronstore.Spec{Schedule: "0 2 * * *", Timezone: "UTC", Job: "dump", Queue: "default"}, Watermark: Epoch, NextTick: Epoch.Add(14 * time.Hour),
		}},
		Ticks: map[string][]cronstore.Tick{"backup": {
			{Cron: "backup", Tick: Epoch.Add(-10 * time.Hour), Verdict: cronstore.Fired, JobID: 42, Term: 7, NodeID: "node-1", RecordedAt: Epoch.Add(-10 * time.Hour), LatenessMS: 4.2, Count: 1},
			{Cron: "backup", Tick: Epoch.Add(-34 * time.Hour), Verdict: cronstore.SkippedOverlap, Reason: "job 41 is still running", Term: 6, NodeID: "node-2", RecordedAt: Epoch.Add(-34 * time.Hour), Count: 1},
		}},
		Jobs: []jobstore.Job{
			{
				ID: 42, Kind: "dump", State: "retryable", Queue: "default", Attempt: 1, MaxAttempts: 5, Args: json.RawMessage(`{"keep":14}`), Cron: "backup", NodeID: "node-2", CreatedAt: Epoch, ScheduledAt: Epoch, AttemptedAt: Epoch,
				LastError: "disk full", Attempts: []jobstore.Attempt{{Attempt: 1, NodeID: "node-2", StartedAt: Epoch, DurationMS: 812, Outcome: "failed", ExitCode: &exit, Error: "disk full"}},
			},
			{ID: 41, Kind: "dump", State: "completed", Queue: "default", Attempt: 1, MaxAttempts: 5, CreatedAt: Epoch, ScheduledAt: Epoch, AttemptedAt: Epoch, FinalizedAt: Epoch.Add(time.Second)},
		},
		Logs:   []jobstore.LogChunk{{Attempt: 1, Seq: 1, Stream: "stdout", Chunk: "dumping\n"}},
		counts: []jobstore.Count{{Queue: "default", State: "completed", Jobs: 12345}, {Queue: "default", State: "running", Jobs: 3}, {Queue: "bulk", State: "running", Jobs: 1}},
		Settings: map[string]any{
			"cluster": map[string]any{"leader_election": map[string]any{"lease_duration": "3s"}},
			"node":    map[string]any{"roles": []any{"worker", "scheduler"}},
			"crons":   []any{map[string]any{"name": "pulse", "schedule": "@every 1s"}, map[string]any{"name": "other"}},
		},
		rates: aggregator.Rates{
			Renewals:   map[string]aggregator.Rate{"scheduler": {Succeeded: 2398, Attempts: 2400, Since: Epoch.Add(-time.Hour)}},
			Heartbeats: map[string]aggregator.Rate{"node-1": {Succeeded: 10800, Attempts: 10800, Since: Epoch.Add(-3 * time.Hour)}},
		},
		Passes: []compactor.Pass{{NodeID: "node-2", Chunks: 9, Removed: map[string]int64{}, Failed: map[string]string{}}},
		Events: []eventstore.Event{{ID: 2, At: Epoch, Type: eventstore.LeaderElected}, {ID: 1, At: Epoch, Type: eventstore.NodeJoined}},
	}
}

var TestRoles = []string{"scheduler", "metrics_aggregator", "log_compactor"}

// PlainGet sends a GET like a browser on the same machine.
func PlainGet(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:8080"+path, nil))
	return w
}

type History struct{ *Cluster }

func (c History) Range(_ context.Context, q aggregator.Query) ([]aggregator.Row, error) {
	return Read(c.Cluster, func() []aggregator.Row {
		c.Asked = q
		var own []aggregator.Row
		for _, row := range c.Windows {
			if row.Metric == q.Metric {
				own = append(own, row)
			}
		}
		return own
	})
}

func (c History) Sums(_ context.Context, q aggregator.SumQuery) ([]aggregator.Sum, error) {
	return Read(c.Cluster, func() []aggregator.Sum {
		c.Added = q
		return SumWindows(c.Windows, q)
	})
}

// SumWindows adds windows one by one.
func SumWindows(rows []aggregator.Row, q aggregator.SumQuery) (sums []aggregator.Sum) {
	windows := map[[2]any]map[time.Time]bool{}
	for _, row := range rows {
		if row.Metric != q.Metric || row.At.Before(q.From) || !row.At.Before(q.To) {
			continue
		}
		if q.Series != nil && !slices.ContainsFunc(q.Series, func(labels map[string]string) bool { return maps.Equal(labels, row.Labels) }) {
			continue
		}
		at := q.From.Add(row.At.Sub(q.From) / q.Point * q.Point)
		i := slices.IndexFunc(sums, func(s aggregator.Sum) bool { return s.At.Equal(at) && s.Label == row.Labels[q.Label] })
		if i < 0 {
			i = len(sums)
			sums = append(sums, aggregator.Sum{At: at, Label: row.Labels[q.Label]})
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

// Heartbeat updates the heartbeats and renewals of everything that is alive.
func (c *Cluster) Heartbeat(at time.Time) {
	c.Change(func(c *Cluster) {
		for i := range c.Nodes {
			c.Nodes[i].Now = at
			if c.Nodes[i].Present() {
				c.Nodes[i].LastHeartbeatAt = at
			}
		}
		for i, l := range c.Leaders {
			c.Leaders[i].Now = at
			if l.Leads() {
				c.Leaders[i].RenewedAt, c.Leaders[i].LeaseUntil = at, at.Add(3*time.Second)
			}
		}
	})
}
