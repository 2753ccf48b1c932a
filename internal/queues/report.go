// Package queues reports on one queue: what it is configured to do, what waits and runs in it,
// which nodes work it and what happened to it. The page, the API and the commands share it.
package queues

import (
	"context"
	"slices"
	"strings"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/eventstore"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/nodestore"
	"github.com/forge-scheduler/forge/internal/postgres"
)

// Bounds of a report.
const (
	listedJobs   = 10
	listedCrons  = 20
	listedKinds  = 50
	listedPauses = 20
)

// Report describes a queue.
type Report struct {
	jobstore.QueueDetail

	// PausedBy is who paused the queue; empty if it is not paused, or if that is not known.
	PausedBy string `json:"paused_by,omitempty"`
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
	Recent *Recent `json:"recent,omitempty"`
	// RunningJobs are the newest running jobs.
	RunningJobs []jobstore.Job `json:"running_jobs"`
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

// Reader makes reports from the rows of one database.
type Reader struct{ db postgres.DB }

// New returns the reader of a database.
func New(db postgres.DB) *Reader { return &Reader{db} }

// Queue reports on a queue. It returns jobstore.ErrNoQueue if nothing names the queue: no node,
// no job, no cron and not the configuration.
func (r *Reader) Queue(ctx context.Context, name string) (report Report, err error) {
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
	if err := r.addRecent(ctx, &report); err != nil {
		return report, err
	}
	if report.RunningJobs, err = jobs.List(ctx, jobstore.Filter{State: "running", Queue: name, Limit: listedJobs}); err != nil {
		return report, err
	}
	report.Pauses, err = eventstore.New(r.db).QueueChanges(ctx, name, listedPauses)
	if err == nil && !report.PausedAt.IsZero() && len(report.Pauses) > 0 && report.Pauses[0].Paused() {
		report.PausedBy = report.Pauses[0].By
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
