// Package queues reports on one queue: what it is configured to do, what waits and runs in it,
// which nodes work it and what happened to it. The page, the API and the commands share it.
package queues

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/forge-scheduler/forge/internal/aggregator"
	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/limitkey"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// Bounds of a report.
const (
	listedJobs   = 10
	listedCrons  = 20
	listedKinds  = 50
	listedPauses = 20
	listedKeys   = 50
)

// Report describes a queue.
type Report struct {
	jobstore.QueueDetail

	// Configured is what the configuration in force says about the queue; nil if nothing.
	Configured *cronstore.QueueConfig `json:"configured,omitempty"`
	// ServedBy are the nodes that work the queue, by id.
	ServedBy []Server `json:"served_by"`
	// Kinds are the kinds whose jobs the configuration puts into the queue, and those of jobs
	// in it. MoreKinds is whether there are others.
	Kinds     []string `json:"kinds"`
	MoreKinds bool     `json:"more_kinds,omitempty"`
	// Crons are those whose jobs are of the queue, by name. MoreCrons is whether there are others.
	Crons     []cronstore.QueueCron `json:"crons"`
	MoreCrons bool                  `json:"more_crons,omitempty"`
	// Recent is nil if no metrics aggregator has recorded the last minutes.
	Recent *aggregator.Work `json:"recent,omitempty"`
	// RateLeft is how many units the queue's rate of all jobs together lets start now; nil
	// without one.
	RateLeft *int `json:"rate_left,omitempty"`
	// Key is the key of fair_by, or else of a limit by key or of the rate. Keys are the selected values of
	// it. MoreKeys is whether there are others.
	Key      string            `json:"key,omitempty"`
	Keys     []jobstore.KeyUse `json:"keys,omitempty"`
	MoreKeys bool              `json:"more_keys,omitempty"`
	// FairReady is whether the jobs take turns. Until the index for fair_by is built, they start in
	// the order of priority and time.
	FairReady bool `json:"fair_ready,omitempty"`
	// RunningJobs are the newest running jobs.
	RunningJobs []jobstore.Job `json:"running_jobs"`
	// PausedJobs are the parts of the jobs that are paused, the oldest pauses first.
	PausedJobs []jobstore.JobPause `json:"paused_jobs,omitempty"`
	// Pauses are the newest pauses and resumptions, newest first.
	Pauses []eventstore.QueueChange `json:"pauses"`
}

// Server is a node that works a queue.
type Server struct {
	NodeID string `json:"node_id"`
	// State is active, or draining for a node that takes no more jobs.
	State string `json:"state"`
	// Slots is how many jobs of the queue the node runs at once.
	Slots int `json:"slots"`
}

// Worked reports whether a node takes jobs of the queue.
func (r *Report) Worked() bool { return r.Nodes > 0 }

// RatedKeys reports whether Keys have what a rate by the same key leaves.
func (r *Report) RatedKeys() bool { return len(r.Keys) > 0 && r.Keys[0].RateLeft != nil }

// Reader makes reports from the rows of one database.
type Reader struct{ db postgres.DB }

// New returns the reader of a database.
func New(db postgres.DB) *Reader { return &Reader{db} }

// Queue reports on a queue, with the selected values of its key. It returns jobstore.ErrNoQueue if nothing names the queue: no node,
// no job, no cron and not the configuration.
func (r *Reader) Queue(ctx context.Context, name string, keys jobstore.KeySearch) (report Report, err error) {
	jobs, crons := jobstore.New(r.db), cronstore.New(r.db)
	if report.QueueDetail, err = jobs.Queue(ctx, name); err != nil {
		return report, err
	}
	configured, kinds, err := crons.Queue(ctx, name, listedKinds+1)
	if err != nil {
		return report, err
	}
	report.Configured = configured
	report.addKinds(kinds)
	if report.Crons, err = crons.OfQueue(ctx, name, listedCrons+1); err != nil {
		return report, err
	}
	if report.MoreCrons = len(report.Crons) > listedCrons; report.MoreCrons {
		report.Crons = report.Crons[:listedCrons]
	}
	if !report.Known && configured == nil && len(report.Kinds) == 0 && len(report.Crons) == 0 {
		return report, jobstore.ErrNoQueue
	}
	if err := r.addServers(ctx, &report); err != nil {
		return report, err
	}
	if err := r.addKeys(ctx, &report, keys); err != nil {
		return report, err
	}
	if report.Recent, err = aggregator.NewStore(r.db).WorkOf(ctx, "queue", name, report.Now, time.Time{}); err != nil {
		return report, err
	}
	if report.RunningJobs, err = jobs.List(ctx, jobstore.Filter{State: "running", Queue: name, Limit: listedJobs}); err != nil {
		return report, err
	}
	if report.PausedJobs, err = jobs.JobPauses(ctx, name); err != nil {
		return report, err
	}
	report.Pauses, err = eventstore.New(r.db).QueueChanges(ctx, name, listedPauses)
	if paused := !report.PausedAt.IsZero(); err == nil && paused && report.PausedBy == "" && len(report.Pauses) > 0 && report.Pauses[0].Paused() && report.Pauses[0].Jobs == "" {
		report.PausedBy = report.Pauses[0].By // by an earlier version of forge
	}
	report.neverNull()
	return report, err
}

// neverNull makes the lists of a document empty rather than null.
func (r *Report) neverNull() {
	if r.RunningJobs == nil {
		r.RunningJobs = []jobstore.Job{}
	}
	if r.Pauses == nil {
		r.Pauses = []eventstore.QueueChange{}
	}
	if r.Crons == nil {
		r.Crons = []cronstore.QueueCron{}
	}
	if r.Kinds == nil {
		r.Kinds = []string{}
	}
}

func (r *Report) addKinds(configured []string) {
	kinds := append(slices.Clone(configured), r.QueueDetail.Kinds...)
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	r.MoreKinds = len(kinds) > listedKinds
	r.Kinds = kinds[:min(len(kinds), listedKinds)]
}

// addKeys adds the values of the queue's key, if this version knows it.
func (r *Reader) addKeys(ctx context.Context, report *Report, of jobstore.KeySearch) (err error) {
	jobs := jobstore.New(r.db)
	key, ok := keyOf(report.Configured)
	if !ok {
		return r.addRates(ctx, report)
	}
	report.Key = key.String()
	if report.Keys, err = jobs.KeyUses(ctx, report.Name, key, of, listedKeys+1); err != nil {
		return err
	}
	if report.MoreKeys = len(report.Keys) > listedKeys; report.MoreKeys {
		report.Keys = report.Keys[:listedKeys]
	}
	if report.Configured.FairBy != "" {
		if report.FairReady, err = jobs.FairIndexReady(ctx, jobstore.FairQueue{Queue: report.Name, Key: key}); err != nil {
			return err
		}
	}
	return r.addRates(ctx, report)
}

// addRates adds what the queue's rate leaves, for all jobs together or for each listed value of
// its key.
func (r *Reader) addRates(ctx context.Context, report *Report) error {
	jobs := jobstore.New(r.db)
	limits, err := jobs.Limits(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(limits, func(l jobstore.Limit) bool {
		return l.Scope == jobstore.ScopeQueue && l.Name == report.Name && l.Class() == jobstore.ClassRate
	})
	if i < 0 || limits[i].Key != "" && limits[i].Key != report.Key {
		return nil
	}
	left := map[string]**int{}
	if limits[i].Key == "" {
		left[""] = &report.RateLeft
	} else {
		for k := range report.Keys {
			left[report.Keys[k].Key] = &report.Keys[k].RateLeft
		}
	}
	var of []jobstore.Places
	for key := range left {
		of = append(of, jobstore.Places{Scope: jobstore.ScopeQueue, Name: report.Name, Key: key})
	}
	windows, err := jobs.RateWindows(ctx, of)
	for _, w := range windows {
		units := w.Left(limits[i])
		*left[w.Key] = &units
	}
	return err
}

// keyOf returns the key of fair_by, or else of a limit by key or of the rate. ok is false if the queue has none,
// or one of another version.
func keyOf(c *cronstore.QueueConfig) (key limitkey.Key, ok bool) {
	text := ""
	switch {
	case c == nil:
	case c.FairBy != "":
		text = c.FairBy
	case c.LimitPerKey != nil:
		text = c.LimitPerKey.Key
	case c.MaxWorkersPerKey != nil:
		text = c.MaxWorkersPerKey.Key
	case c.RateLimit != nil:
		text = c.RateLimit.Key
	}
	key, err := limitkey.Parse(text)
	return key, err == nil
}

func (r *Reader) addServers(ctx context.Context, report *Report) error {
	nodes, err := nodestore.New(r.db).List(ctx)
	report.ServedBy = Servers(nodes, report.Name)
	return err
}

// Servers returns the nodes that work a queue, by id.
func Servers(nodes []nodestore.Node, queue string) []Server {
	servers := []Server{}
	for _, n := range nodes {
		if workers := n.Queues[queue]; n.Present() && workers > 0 {
			servers = append(servers, Server{n.NodeID, n.State, min(workers, n.Slots)})
		}
	}
	slices.SortFunc(servers, func(a, b Server) int { return strings.Compare(a.NodeID, b.NodeID) })
	return servers
}
