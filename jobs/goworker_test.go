package jobs_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/wire"
	"github.com/forge-scheduler/forge/jobs"
)

type greetArgs struct {
	Name string `json:"name"`
}

func (greetArgs) Kind() string { return "greet" }

// addWorker adds a worker for the kind "greet" on one of the two paths.
type addWorker func(*river.Workers, river.Worker[greetArgs])

// worker returns an option that adds a worker.
func (add addWorker) worker(work func(ctx context.Context) error) func(*jobs.Options) {
	return func(o *jobs.Options) {
		o.Workers = river.NewWorkers()
		add(o.Workers, river.WorkFunc(func(ctx context.Context, _ *river.Job[greetArgs]) error { return work(ctx) }))
	}
}

// onBothPaths runs a test with a worker on forge's executor and with one on River's.
func onBothPaths(t *testing.T, test func(t *testing.T, add addWorker)) {
	t.Helper()
	for name, add := range map[string]addWorker{"forge": jobs.AddWorker[greetArgs], "river": river.AddWorker[greetArgs]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, add)
		})
	}
}

func TestGoWorkerWithTransactionalInsert(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		seen := make(chan jobs.Run, 1)
		n := startNode(t, map[string]config.Job{"hello": shell("true")}, add.worker(func(ctx context.Context) error {
			run, _ := jobs.FromContext(ctx)
			_, _ = fmt.Fprintln(jobs.Output(ctx), "hi")
			seen <- run
			return nil
		}))
		if want := []string{"greet", "hello"}; !slices.Equal(n.Kinds(), want) {
			t.Errorf("kinds are %v, want %v", n.Kinds(), want)
		}
		var id int64
		err := pgx.BeginFunc(t.Context(), n.pool, func(tx pgx.Tx) error {
			result, err := n.Client().InsertTx(t.Context(), tx, greetArgs{Name: "you"}, nil)
			id = result.Job.ID
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		n.offer(t, id)
		job := n.finish(t, id, "completed")
		if run := <-seen; run.JobID != id || run.Job != "greet" || run.Attempt != 1 || run.NodeID != nodeID {
			t.Errorf("the worker saw %+v", run)
		}
		if len(job.Attempts) != 1 || job.Attempts[0].OutputBytes != 3 || n.logs(t, id, 1, jobstore.StreamStdout) != "hi\n" {
			t.Errorf("got %+v", job)
		}
	})
}

func TestGoWorkerCompletesInOwnTransaction(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		n := startNode(t, nil, func(o *jobs.Options) {
			o.Workers = river.NewWorkers()
			add(o.Workers, river.WorkFunc(func(ctx context.Context, job *river.Job[greetArgs]) error {
				return pgx.BeginFunc(ctx, o.Pool, func(tx pgx.Tx) error {
					_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
					return err
				})
			}))
		})
		job := n.finish(t, n.work(t, jobstore.NewJob{Kind: "greet"}), "completed")
		eventually(t, func() bool {
			job = n.finish(t, job.ID, "completed")
			return len(job.Attempts) == 1
		}, func() string { return "the attempt's result was not merged" })
	})
}

func TestPanicFailsAttempt(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		n := startNode(t, nil, add.worker(func(context.Context) error { panic("at the disco") }))
		job := n.finish(t, n.work(t, jobstore.NewJob{Kind: "greet", MaxAttempts: 1}), "discarded")
		if !strings.Contains(job.LastError, "disco") || job.Attempts[0].Outcome != jobstore.OutcomeFailed {
			t.Errorf("got %+v", job)
		}
		var trace string
		err := n.pool.QueryRow(t.Context(), `SELECT errors[1] ->> 'trace' FROM river_job WHERE id = $1`, job.ID).Scan(&trace)
		if err != nil || !strings.HasPrefix(trace, "github.com/forge-scheduler/forge/jobs_test.TestPanicFailsAttempt.") {
			t.Errorf("the trace does not begin where the worker panicked: %v\n%s", err, trace)
		}
	})
}

// A worker that ends its goroutine fails, and its slot becomes free: the node has one
// slot, runs the next job in it, and stops.
func TestGoexitFailsAttempt(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		var exits atomic.Bool
		exits.Store(true)
		n := startNode(t, nil, func(o *jobs.Options) { o.Slots = 1 }, add.worker(func(context.Context) error {
			if exits.Load() {
				runtime.Goexit()
			}
			return nil
		}))
		for range 2 {
			job := n.finish(t, n.work(t, jobstore.NewJob{Kind: "greet", MaxAttempts: 1}), "discarded")
			if !strings.Contains(job.LastError, "runtime.Goexit") || job.Attempts[0].Outcome != jobstore.OutcomeFailed {
				t.Errorf("got %+v", job)
			}
		}
		exits.Store(false)
		n.finish(t, n.work(t, jobstore.NewJob{Kind: "greet"}), "completed")
		n.wantCredit(t, func(c wire.Credit) bool { return c.Slots == 1 && c.Seen == n.seq.Load() })
		n.stop()
	})
}
