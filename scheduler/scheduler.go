// Package scheduler joins what the scheduler's leader does: firing crons,
// assigning jobs to nodes, putting due and orphaned jobs back in line, and
// looking after dead letters. Each is a package of its own below this one.
package scheduler

import (
	"context"
	"fmt"
	"sync"

	"github.com/forge-scheduler/forge/leaderstore"
)

// Task is one part of the leader's work. Lead returns when ctx ends, which is
// no error, or when the term is over.
type Task interface {
	Lead(ctx context.Context, fence leaderstore.Fence) error
}

// Scheduler is the work of the scheduler's leader.
type Scheduler struct{ tasks []Task }

// New returns a Scheduler made of tasks, which run side by side.
func New(tasks ...Task) *Scheduler { return &Scheduler{tasks} }

// Lead runs every task in the name of a term. When one returns, the others are
// stopped: half a leader is none. It returns when all have, with the first
// error.
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
