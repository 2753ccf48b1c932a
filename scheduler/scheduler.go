// Package scheduler combines the tasks of the scheduler's leader: firing crons, assigning
// jobs to nodes, releasing due and orphaned jobs, and handling dead letters. Each task has a
// package below this one.
package scheduler

import (
	"context"
	"fmt"
	"sync"

	"github.com/forge-scheduler/forge/leaderstore"
)

// Task is one part of the leader's work. Lead returns nil when ctx ends, and an error when the
// term is over.
type Task interface {
	Lead(ctx context.Context, fence leaderstore.Fence) error
}

// Scheduler is the work of the scheduler's leader.
type Scheduler struct{ tasks []Task }

// New returns a Scheduler that runs the tasks concurrently.
func New(tasks ...Task) *Scheduler { return &Scheduler{tasks} }

// Lead runs every task for a term. When one task returns, Lead stops the others, because a
// leader must do all of its tasks. Lead returns the first error once all tasks have returned.
func (s *Scheduler) Lead(ctx context.Context, fence leaderstore.Fence) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var first error
	var once sync.Once
	var running sync.WaitGroup
	for _, task := range s.tasks {
		running.Go(func() {
			defer stop()
			if err := task.Lead(working, fence); err != nil {
				once.Do(func() { first = fmt.Errorf("lead the scheduler: %w", err) })
			}
		})
	}
	running.Wait()
	return first
}
