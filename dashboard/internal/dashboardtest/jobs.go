package dashboardtest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/explain"
	"github.com/forge-scheduler/forge/internal/jobstore"
)

func (f Jobs) List(_ context.Context, filter jobstore.Filter) ([]jobstore.Job, error) {
	return Read(f.Cluster, func() []jobstore.Job {
		var own []jobstore.Job
		for _, j := range f.Jobs {
			fits := (filter.State == "" || j.State == filter.State) && (filter.Kind == "" || j.Kind == filter.Kind) &&
				(filter.Cron == "" || j.Cron == filter.Cron) && (filter.BeforeID == 0 || j.ID < filter.BeforeID)
			if fits && len(own) < filter.Limit {
				own = append(own, j)
			}
		}
		return own
	})
}

// Search matches the kinds, states, queues and nodes of the terms.
func (f Jobs) Search(ctx context.Context, filter jobstore.Filter) (found jobstore.Found, err error) {
	jobs, err := f.List(ctx, filter)
	for _, j := range jobs {
		fits := map[string]bool{}
		for _, t := range filter.Where.Terms() {
			fits[t.Key] = fits[t.Key] || t.Text.Matches(map[string]string{"kind": j.Kind, "state": j.State, "queue": j.Queue, "node": j.NodeID}[t.Key])
		}
		if !slices.Contains(slices.Collect(maps.Values(fits)), false) {
			found.Jobs = append(found.Jobs, j)
		}
	}
	if n := len(found.Jobs); n > 0 && (n == filter.Limit || filter.EndsEarly(found.Jobs)) {
		found.Next = found.Jobs[n-1].ID
	}
	return found, err
}

func (f Jobs) Get(ctx context.Context, id int64) (jobstore.Job, error) {
	jobs, err := f.List(ctx, jobstore.Filter{Limit: 1000})
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

func (f Jobs) Logs(_ context.Context, _ int64, attempt, afterSeq int) ([]jobstore.LogChunk, error) {
	return Read(f.Cluster, func() []jobstore.LogChunk {
		var own []jobstore.LogChunk
		for _, c := range f.Cluster.Logs {
			if c.Attempt == attempt && c.Seq > afterSeq {
				own = append(own, c)
			}
		}
		return own
	})
}

// RunningByOwner counts the running jobs in the list by their nodes.
func (f Jobs) RunningByOwner(_ context.Context, owners []string) (map[string]int, error) {
	return Read(f.Cluster, func() map[string]int {
		running := map[string]int{}
		for _, n := range f.Nodes {
			for _, j := range f.Jobs {
				if j.State == "running" && j.NodeID == n.NodeID && slices.Contains(owners, n.ClientID()) {
					running[n.ClientID()]++
				}
			}
		}
		return running
	})
}

func (f Jobs) Placement(ctx context.Context, id int64) (explain.Placement, error) {
	job, err := f.Get(ctx, id)
	return explain.Placement{
		JobID: job.ID, State: job.State, Sentence: "Job 42 (dump) waits: no node has capability gpu; nodes have <none>.",
		Candidates: []explain.Candidate{
			{NodeID: "node-1", Slots: 50, Capabilities: []string{}, Rejected: []explain.Rejection{{Reason: explain.Draining, Detail: "is draining"}, {Reason: explain.NoAbility, Detail: "lacks capability gpu"}}},
			{NodeID: "node-2", Running: 3, Slots: 50, Capabilities: []string{}, Chosen: true},
		},
		Attempts: []jobstore.Attempt{},
	}, err
}

func (f Jobs) CountsByQueueAndState(context.Context) ([]jobstore.Count, error) {
	return Read(f.Cluster, func() []jobstore.Count { return f.counts })
}

func (f Jobs) States(ctx context.Context, ids []int64) (map[int64]string, error) {
	states := map[int64]string{}
	for _, id := range ids {
		if job, err := f.Get(ctx, id); err == nil {
			states[id] = job.State
		}
	}
	_, err := f.List(ctx, jobstore.Filter{})
	return states, err
}

func (f Crons) NewestTicks(ctx context.Context, crons []string, limit int) (map[string][]cronstore.Tick, error) {
	newest := map[string][]cronstore.Tick{}
	for _, cron := range crons {
		ticks, err := f.Ticks(ctx, cron, time.Time{}, limit)
		if err != nil {
			return nil, err
		}
		newest[cron] = ticks
	}
	return newest, nil
}
