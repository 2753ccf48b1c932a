package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/riverqueue/river"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/bench/internal/rig"
)

// roleEnv makes this program one node of a system. It holds a role.
const roleEnv = "BENCH_ROLE"

// role is what a process is.
type role struct {
	System string `json:"system"` // forge or river
	// What River has no file for.
	URL      string        `json:"url"`
	ID       string        `json:"id"`
	Workers  int           `json:"workers"`
	Cooldown time.Duration `json:"cooldown"`
	// Task is what it does beside working; empty: nothing. It ends with the task,
	// whose figures it writes to Out. Without a task it counts there what it works.
	Task   string        `json:"task"`
	Length time.Duration `json:"length"`
	Out    string        `json:"out"`
}

// noop is the job of every part. N is its number where that matters.
type noop struct {
	N int `json:"n"`
}

func (noop) Kind() string { return "noop" }

// runNode is a node of a system.
func runNode(ctx context.Context, text string) error {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return fmt.Errorf("read what to be: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		count counter
		begun = count.add
		use   = count.keep(r.Out)
	)
	if r.Task != "" {
		t := newTask(r)
		begun, use = t.begun, t.until(stop)
	}
	workers := river.NewWorkers()
	worker := river.WorkFunc(func(_ context.Context, job *river.Job[noop]) error {
		begun(job.Args.N)
		return nil
	})
	if r.System == forgeSystem.name {
		defer forge.TuneMemory(slog.Default())()
		forge.AddWorker(workers, worker)
		return rig.RunForge(ctx, use, forge.WithWorkers(workers))
	}
	river.AddWorker(workers, worker)
	return rig.RunRiver(ctx, r.URL, &river.Config{
		ID: r.ID, Workers: workers, FetchCooldown: r.Cooldown,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.Workers}},
	}, use)
}

func (r role) save(figures map[string]float64) error {
	body, err := json.Marshal(figures)
	if err == nil {
		err = os.WriteFile(r.Out, body, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write what was measured: %w", err)
	}
	return nil
}
