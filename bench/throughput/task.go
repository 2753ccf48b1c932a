package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"golang.org/x/sync/errgroup"

	"github.com/forge-scheduler/forge/bench/internal/rig"
)

const (
	// inserters insert at the same time.
	inserters = 10
	// batch is how many jobs are inserted at once.
	batch = 1000
	// rate is how many jobs a second are inserted to see how soon they start.
	rate = 50
	// settling is how long something goes on before it is measured, at most.
	settling = 300 * time.Millisecond
	// nobodys is a queue that no node works.
	nobodys = "nobodys"
)

// taskMeasures are the figures of all tasks, in the order of the table.
var taskMeasures = []string{
	"insert_single", "insert_batch", "insert_copy",
	"start_p50_ms", "start_p99_ms", "committed_start_p50_ms", "committed_start_p99_ms",
}

// client is the same on both sides: forge's nodes hand out River's.
type client = *river.Client[pgx.Tx]

// task is what a process does with its client beside working.
type task struct {
	role

	mu     sync.Mutex
	starts map[int]time.Time // of jobs, by number
}

func newTask(r role) *task { return &task{role: r, starts: map[int]time.Time{}} }

func (t *task) settling() time.Duration { return min(settling, t.Length/4) }

// begun is what the worker tells.
func (t *task) begun(n int) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.starts[n] = now
}

// until carries the task out, and then ends the process.
func (t *task) until(stop func()) rig.Use {
	return func(ctx context.Context, c client) error {
		measure := t.insert
		if t.Task == startPart {
			measure = t.start
		}
		figures, err := measure(ctx, c)
		if err != nil {
			return err
		}
		defer stop()
		return t.save(figures)
	}
}

// insert measures three ways to insert, as jobs a second.
func (t *task) insert(ctx context.Context, c client) (map[string]float64, error) {
	many := make([]river.InsertManyParams, batch)
	for i := range many {
		many[i] = river.InsertManyParams{Args: noop{N: i}, InsertOpts: &river.InsertOpts{Queue: nobodys}}
	}
	figures := map[string]float64{}
	for _, way := range []struct {
		name       string
		inserters  int
		jobs       int
		insertJobs func(ctx context.Context) error
	}{
		{"insert_single", inserters, 1, func(ctx context.Context) error {
			_, err := c.Insert(ctx, noop{}, &river.InsertOpts{Queue: nobodys})
			return err
		}},
		{"insert_batch", 1, batch, func(ctx context.Context) error {
			_, err := c.InsertMany(ctx, many)
			return err
		}},
		{"insert_copy", 1, batch, func(ctx context.Context) error {
			_, err := c.InsertManyFast(ctx, many)
			return err
		}},
	} {
		if _, err := timesPerSecond(ctx, way.inserters, t.settling(), way.insertJobs); err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		times, err := timesPerSecond(ctx, way.inserters, t.Length/3, way.insertJobs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.name, err)
		}
		figures[way.name] = times * float64(way.jobs)
	}
	return figures, nil
}

// timesPerSecond is how often a second some goroutines do something.
func timesPerSecond(ctx context.Context, goroutines int, length time.Duration, do func(context.Context) error) (float64, error) {
	group, ctx := errgroup.WithContext(ctx)
	counts := make([]int, goroutines)
	began := time.Now()
	for i := range counts {
		group.Go(func() error {
			for { // once at least, however late this begins
				if err := do(ctx); err != nil {
					return err
				}
				if counts[i]++; time.Since(began) >= length {
					return nil
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / time.Since(began).Seconds(), nil
}

// start measures how soon jobs start that are inserted at a steady rate, each at
// its instant whether those before it are in or not: from the call that inserts,
// and from its return, when the job is committed.
func (t *task) start(ctx context.Context, c client) (map[string]float64, error) {
	warmUp := int(rate * t.settling().Seconds())
	total := warmUp + int(rate*t.Length.Seconds())
	called, returned := make([]time.Time, total), make([]time.Time, total)
	group, inserting := errgroup.WithContext(ctx)
	begin := time.Now()
	for n := range total {
		if err := rig.SleepUntil(ctx, begin.Add(time.Duration(n)*time.Second/rate)); err != nil {
			return nil, err
		}
		group.Go(func() error {
			called[n] = time.Now()
			_, err := c.Insert(inserting, noop{N: n}, nil)
			returned[n] = time.Now()
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("insert: %w", err)
	}
	err := rig.Await(ctx, "the last job", func(context.Context) (bool, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return len(t.starts) == total, nil
	})
	if err != nil {
		return nil, err
	}
	var fromCall, fromReturn []time.Duration
	for n := warmUp; n < total; n++ {
		fromCall = append(fromCall, t.starts[n].Sub(called[n]))
		fromReturn = append(fromReturn, t.starts[n].Sub(returned[n]))
	}
	return map[string]float64{
		"start_p50_ms": rig.Quantile(fromCall, 0.5), "start_p99_ms": rig.Quantile(fromCall, 0.99),
		"committed_start_p50_ms": rig.Quantile(fromReturn, 0.5), "committed_start_p99_ms": rig.Quantile(fromReturn, 0.99),
	}, nil
}
