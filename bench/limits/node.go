package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// outEnv makes this program one node.
const outEnv = "BENCH_NODE"

// job takes MS milliseconds. K is its key.
type job struct {
	K  string `json:"k"`
	MS int    `json:"ms"`
}

func (job) Kind() string { return "job" }

// runNode is a node, until ctx ends.
func runNode(ctx context.Context, _ string) error {
	workers := river.NewWorkers()
	forge.AddWorker(workers, river.WorkFunc(func(ctx context.Context, j *river.Job[job]) error {
		if j.Args.MS == 0 {
			return nil
		}
		return rig.SleepUntil(ctx, time.Now().Add(time.Duration(j.Args.MS)*time.Millisecond))
	}))
	defer forge.TuneMemory(slog.Default())()
	return rig.RunForge(ctx, nil, forge.WithWorkers(workers))
}
