package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/jobs"
)

// roleEnv makes this program one node of a system. It holds a role.
const roleEnv = "BENCH_ROLE"

// role is what a process is.
type role struct {
	System string `json:"system"` // forge or river
	ID     string `json:"id"`
	Out    string `json:"out"` // a rig.Start of each job
	URL    string `json:"url"` // of River, which has no file
}

// cronID is the number of all starts of crons.
const cronID = -1

// noop is each job. A cron's has no due: the job knows its tick.
type noop struct {
	N   int64 `json:"n"`
	Due int64 `json:"due"` // microseconds since 1970
}

func (noop) Kind() string { return "noop" }

// runNode is a node of a system.
func runNode(ctx context.Context, text string) (err error) {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return fmt.Errorf("read what to be: %w", err)
	}
	started, end, err := rig.NewStarts(r.Out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	workers := river.NewWorkers()
	worker := river.WorkFunc(func(ctx context.Context, job *river.Job[noop]) error {
		now := time.Now()
		if job.Args.Due > 0 {
			started.Add(job.Args.N, time.UnixMicro(job.Args.Due), now)
		} else if run, ok := jobs.FromContext(ctx); ok {
			started.Add(cronID, run.Tick, now)
		}
		return nil
	})
	if r.System == forgeSystem.name {
		forge.AddWorker(workers, worker)
		return rig.RunForge(ctx, nil, forge.WithWorkers(workers))
	}
	river.AddWorker(workers, worker)
	return rig.RunRiver(ctx, r.URL, &river.Config{
		ID: r.ID, Workers: workers, FetchCooldown: fetchCooldown,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}},
	}, nil)
}
