package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/bench/internal/rig"
	"github.com/forge-scheduler/forge/jobs"
)

// The environment makes this program one node of a system.
const (
	nodeEnv     = "BENCH_NODE_OF" // forge or river
	urlEnv      = "BENCH_URL"
	idEnv       = "BENCH_ID"
	startsEnv   = "BENCH_STARTS"
	slotsEnv    = "BENCH_SLOTS"
	workloadEnv = "BENCH_WORKLOAD"
)

// fetchCooldown is River's least time between two fetches. Its default of 100 ms
// would decide the comparison; forge's is this.
const fetchCooldown = 2 * time.Millisecond

// noop is the job of every cron.
type noop struct {
	Cron int64 `json:"cron"`
}

func (noop) Kind() string { return "noop" }

// runNode is a node of a system.
func runNode(ctx context.Context, system string) (err error) {
	started, end, err := rig.NewStarts(os.Getenv(startsEnv))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if system == riverSystem.name {
		return runRiver(ctx, started)
	}
	return runForge(ctx, started)
}

func runForge(ctx context.Context, started *rig.Starts) error {
	workers := river.NewWorkers()
	forge.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[noop]) error {
		now := time.Now()
		run, _ := jobs.FromContext(ctx)
		started.Add(job.Args.Cron, run.Tick, now)
		return nil
	}))
	return rig.RunForge(ctx, nil, forge.WithWorkers(workers))
}

func runRiver(ctx context.Context, started *rig.Starts) error {
	var w workload
	if err := json.Unmarshal([]byte(os.Getenv(workloadEnv)), &w); err != nil {
		return fmt.Errorf("read the workload: %w", err)
	}
	slots, err := strconv.Atoi(os.Getenv(slotsEnv))
	if err != nil {
		return fmt.Errorf("read the slots: %w", err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[noop]) error {
		now := time.Now()
		started.Add(job.Args.Cron, job.ScheduledAt, now)
		return nil
	}))
	return rig.RunRiver(ctx, os.Getenv(urlEnv), &river.Config{
		ID: os.Getenv(idEnv), Workers: workers, PeriodicJobs: periodicJobs(w),
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}},
		FetchCooldown: fetchCooldown,
	}, nil)
}

func periodicJobs(w workload) []*river.PeriodicJob {
	list := make([]*river.PeriodicJob, w.Crons)
	for cron := range w.Crons {
		list[cron] = river.NewPeriodicJob(phased{w, cron}, func() (river.JobArgs, *river.InsertOpts) {
			return noop{Cron: int64(cron)}, nil
		}, nil)
	}
	return list
}
