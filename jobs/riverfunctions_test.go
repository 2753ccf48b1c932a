package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/jobs"
)

// column returns a column of a job as text.
func (n *node) column(t *testing.T, id int64, expression string) string {
	t.Helper()
	var text *string
	if err := n.pool.QueryRow(t.Context(), `SELECT (`+expression+`)::text FROM river_job WHERE id = $1`, id).Scan(&text); err != nil {
		t.Fatal(err)
	}
	if text == nil {
		return ""
	}
	return *text
}

// workFunc returns an option that adds a worker with the job.
func (add addWorker) workFunc(work func(ctx context.Context, job *river.Job[greetArgs]) error) func(*jobs.Options) {
	return func(o *jobs.Options) {
		o.Workers = river.NewWorkers()
		add(o.Workers, river.WorkFunc(work))
	}
}

func TestWorkerGetsArgumentsAndClient(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		names := make(chan string, 1)
		n := startNode(t, nil, add.workFunc(func(ctx context.Context, job *river.Job[greetArgs]) error {
			names <- job.Args.Name
			_, err := river.ClientFromContext[pgx.Tx](ctx).Insert(ctx, args("later"), nil)
			return err
		}))
		n.finish(t, n.work(t, jobstore.NewJob{Kind: "greet", Args: []byte(`{"name":"Ada"}`)}), "completed")
		if name := <-names; name != "Ada" {
			t.Errorf("the worker got the name %q", name)
		}
		var later int
		if err := n.pool.QueryRow(t.Context(), `SELECT count(*) FROM river_job WHERE kind = 'later'`).Scan(&later); err != nil || later != 1 {
			t.Errorf("%d jobs inserted by the worker, %v", later, err)
		}
	})
}

// args are the arguments of a kind without a worker.
type args string

func (a args) Kind() string { return string(a) }

func (a args) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }

func TestWorkerRecordsOutputAndMetadata(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		n := startNode(t, nil, add.worker(func(ctx context.Context) error {
			if err := river.MetadataSet(ctx, "color", "blue"); err != nil {
				return err
			}
			return river.RecordOutput(ctx, map[string]int{"sum": 3})
		}))
		id := n.work(t, jobstore.NewJob{Kind: "greet", Metadata: map[string]any{"old": 1}})
		n.finish(t, id, "completed")
		if got := n.column(t, id, `metadata`); got != `{"old": 1, "color": "blue", "output": {"sum": 3}}` {
			t.Errorf("metadata is %s", got)
		}
	})
}

func TestMetadataThatCannotBeEncodedFailsAttempt(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil, addWorker(jobs.AddWorker[greetArgs]).worker(func(ctx context.Context) error {
		return river.MetadataSet(ctx, "f", func() {})
	}))
	if job := n.finish(t, n.work(t, jobstore.NewJob{Kind: "greet", MaxAttempts: 1}), "discarded"); len(job.Attempts) != 1 {
		t.Errorf("got %+v", job)
	}
}

func TestWorkerCompletesWithOutputInTransaction(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		states := make(chan string, 1)
		n := startNode(t, nil, func(o *jobs.Options) {
			add.workFunc(func(ctx context.Context, job *river.Job[greetArgs]) error {
				if err := river.RecordOutput(ctx, "done"); err != nil {
					return err
				}
				return pgx.BeginFunc(ctx, o.Pool, func(tx pgx.Tx) error {
					done, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
					if err == nil {
						states <- string(done.State)
					}
					return err
				})
			})(o)
		})
		id := n.work(t, jobstore.NewJob{Kind: "greet"})
		n.finish(t, id, "completed")
		if state := <-states; state != "completed" || n.column(t, id, `metadata -> 'output'`) != `"done"` {
			t.Errorf("state %s, metadata %s", state, n.column(t, id, `metadata`))
		}
	})
}

func TestWorkerSnoozesAndCancels(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		var calls atomic.Int32
		n := startNode(t, nil, add.worker(func(context.Context) error {
			switch calls.Add(1) {
			case 1:
				return river.JobSnooze(time.Hour)
			case 2:
				return fmt.Errorf("wrapped: %w", river.JobSnooze(0))
			default:
				return river.JobCancel(errors.New("no use"))
			}
		}))
		id := n.work(t, jobstore.NewJob{Kind: "greet"})
		if job := n.finish(t, id, "scheduled"); job.Attempt != 0 || job.Snoozes != 1 || time.Until(job.ScheduledAt) < 59*time.Minute {
			t.Errorf("after a snooze: %+v", job)
		}
		exec(t, n.pool, `UPDATE river_job SET state = 'available', scheduled_at = now()`)
		n.offer(t, id)
		eventually(t, func() bool { return n.column(t, id, `metadata ->> 'snoozes'`) == "2" }, func() string { return "not snoozed again" })
		if job := n.finish(t, id, "available"); job.Attempt != 0 {
			t.Errorf("after a short snooze: %+v", job)
		}
		n.offer(t, id)
		job := n.finish(t, id, "cancelled")
		if job.LastError != "JobCancelError: no use" || job.Attempts[len(job.Attempts)-1].Outcome != jobstore.OutcomeCancelled {
			t.Errorf("after the cancellation: %+v", job)
		}
	})
}

// pickyWorker has a timeout, a next retry and middleware.
type pickyWorker struct {
	river.WorkerDefaults[greetArgs]

	retry time.Time
	seen  chan string
}

func (*pickyWorker) Timeout(job *river.Job[greetArgs]) time.Duration {
	if job.Args.Name == "slow" {
		return 20 * time.Millisecond
	}
	return 0
}

func (w *pickyWorker) NextRetry(*river.Job[greetArgs]) time.Time { return w.retry }

func (w *pickyWorker) Middleware(job *rivertype.JobRow) []rivertype.WorkerMiddleware {
	if job.Priority != 2 {
		return nil
	}
	around := func(name string) rivertype.WorkerMiddleware {
		return river.WorkerMiddlewareFunc(func(ctx context.Context, _ *rivertype.JobRow, inner func(context.Context) error) error {
			w.seen <- name
			err := inner(ctx)
			w.seen <- name
			return err
		})
	}
	return []rivertype.WorkerMiddleware{around("outer"), around("inner")}
}

func (w *pickyWorker) Work(ctx context.Context, job *river.Job[greetArgs]) error {
	if job.Args.Name != "slow" {
		return errors.New("never works")
	}
	<-ctx.Done()
	w.seen <- "work"
	return ctx.Err()
}

func TestWorkerKeepsTimeoutRetryAndMiddleware(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		w := &pickyWorker{retry: time.Now().Add(3 * time.Hour).UTC().Truncate(time.Microsecond), seen: make(chan string, 10)}
		n := startNode(t, nil, func(o *jobs.Options) {
			o.Workers = river.NewWorkers()
			add(o.Workers, w)
		})
		for _, priority := range []int{1, 2} {
			id := n.work(t, jobstore.NewJob{Kind: "greet", Priority: priority, Args: []byte(`{"name":"slow"}`)})
			job := n.finish(t, id, "retryable")
			if !job.ScheduledAt.Equal(w.retry) || job.Attempts[0].Outcome != jobstore.OutcomeTimedOut {
				t.Errorf("priority %d: %+v", priority, job)
			}
		}
		var got []string
		for len(w.seen) > 0 {
			got = append(got, <-w.seen)
		}
		if want := []string{"work", "outer", "inner", "work", "inner", "outer"}; !slices.Equal(got, want) {
			t.Errorf("called %v, want %v", got, want)
		}
		w.retry = time.Now().Add(-time.Hour) // in the past: River's default, a second after the first attempt
		id := n.work(t, jobstore.NewJob{Kind: "greet"})
		if job := n.finish(t, id, "available", "retryable"); time.Until(job.ScheduledAt) > 5*time.Second {
			t.Errorf("with a time in the past: %+v", job)
		}
	})
}

// resumable has two steps and fails once in the second.
func resumable(ran chan<- string, fail *atomic.Bool) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		river.ResumableStep(ctx, "one", nil, func(context.Context) error {
			ran <- "one"
			return nil
		})
		river.ResumableStepCursor(ctx, "two", nil, func(ctx context.Context, cursor int) error {
			ran <- fmt.Sprint("two from ", cursor)
			if err := river.ResumableSetCursor(ctx, 7); err != nil {
				return err
			}
			if fail.Load() {
				return errors.New("not yet")
			}
			return river.RecordOutput(ctx, "all")
		})
		return nil
	}
}

func TestWorkerResumesSteps(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		var fail atomic.Bool
		fail.Store(true)
		ran := make(chan string, 10)
		n := startNode(t, nil, add.worker(func(ctx context.Context) error {
			if err := river.MetadataSet(ctx, "before", true); err != nil {
				return err
			}
			return resumable(ran, &fail)(ctx)
		}))
		id := n.work(t, jobstore.NewJob{Kind: "greet"})
		job := n.finish(t, id, "retryable", "available")
		if job.LastError != "not yet" && job.State != "available" {
			t.Errorf("got %+v", job)
		}
		eventually(t, func() bool { return n.column(t, id, `metadata ->> 'river:resumable_step'`) == "one" },
			func() string { return "the step was not stored: " + n.column(t, id, `metadata`) })
		fail.Store(false)
		exec(t, n.pool, `UPDATE river_job SET state = 'available', scheduled_at = now()`)
		n.offer(t, id)
		job = n.finish(t, id, "completed")
		if len(job.Attempts) != 2 || job.Attempts[0].Error != "not yet" {
			t.Errorf("attempts are %+v", job.Attempts)
		}
		var got []string
		for len(ran) > 0 {
			got = append(got, <-ran)
		}
		if want := []string{"one", "two from 0", "two from 7"}; !slices.Equal(got, want) {
			t.Errorf("ran %v, want %v", got, want)
		}
		if n.column(t, id, `metadata -> 'output'`) != `"all"` || n.column(t, id, `metadata ->> 'before'`) != "true" {
			t.Errorf("metadata is %s", n.column(t, id, `metadata`))
		}
	})
}

func TestResumableStepFailsWithPanicAndCancellation(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		inside := make(chan struct{}, 1)
		n := startNode(t, nil, add.workFunc(func(ctx context.Context, job *river.Job[greetArgs]) error {
			river.ResumableStep(ctx, "one", nil, func(ctx context.Context) error {
				if job.Args.Name == "panic" {
					panic("in the step")
				}
				inside <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
			return nil
		}))
		// The first job of the kind is the one that moves from forge's executor to River's.
		id := n.work(t, jobstore.NewJob{Kind: "greet"})
		<-inside
		if _, err := n.Client().JobCancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		n.finish(t, id, "cancelled")
		id = n.work(t, jobstore.NewJob{Kind: "greet", MaxAttempts: 1, Args: []byte(`{"name":"panic"}`)})
		job := n.finish(t, id, "discarded")
		if job.LastError != "in the step" || n.column(t, id, `errors[1] ->> 'trace'`) == "" {
			t.Errorf("got %+v", job)
		}
	})
}

// The drain interrupts a resumable attempt that began on forge's executor.
func TestDrainInterruptsResumableStep(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		inside := make(chan struct{}, 1)
		n := startNode(t, nil, add.worker(func(ctx context.Context) error {
			river.ResumableStep(ctx, "one", nil, func(ctx context.Context) error {
				inside <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
			return nil
		}), func(o *jobs.Options) { o.DrainTimeout = 50 * time.Millisecond })
		id := n.work(t, jobstore.NewJob{Kind: "greet"})
		<-inside
		n.stop()
		if job := n.finish(t, id, "available"); job.Attempt != 0 || job.LastError != "" {
			t.Errorf("got %+v", job)
		}
	})
}

func TestSubscribersReceiveEvents(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		inside := make(chan struct{}, 1)
		n := startNode(t, nil, add.workFunc(func(ctx context.Context, job *river.Job[greetArgs]) error {
			switch job.Args.Name {
			case "fail":
				return errors.New("failed")
			case "snooze":
				return river.JobSnooze(time.Hour)
			case "cancel":
				return river.JobCancel(errors.New("cancelled"))
			case "wait":
				inside <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}), func(o *jobs.Options) { o.DrainTimeout = 50 * time.Millisecond })
		events, cancel := n.Client().Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed,
			river.EventKindJobSnoozed, river.EventKindJobCancelled, river.EventKindJobInterrupted)
		defer cancel()
		await := func(id int64, kind river.EventKind, state rivertype.JobState) {
			t.Helper()
			select {
			case event := <-events:
				if event == nil || event.Kind != kind || event.Job.ID != id || event.Job.State != state || event.JobStats == nil {
					t.Errorf("got %+v, want %s of job %d", event, kind, id)
				}
			case <-time.After(waitTimeout):
				t.Fatalf("no event %s", kind)
			}
		}
		for _, test := range []struct {
			name  string
			kind  river.EventKind
			state rivertype.JobState
		}{
			{"", river.EventKindJobCompleted, rivertype.JobStateCompleted},
			{"fail", river.EventKindJobFailed, rivertype.JobStateDiscarded},
			{"snooze", river.EventKindJobSnoozed, rivertype.JobStateScheduled},
			{"cancel", river.EventKindJobCancelled, rivertype.JobStateCancelled},
		} {
			body, _ := json.Marshal(greetArgs{Name: test.name})
			await(n.work(t, jobstore.NewJob{Kind: "greet", MaxAttempts: 1, Args: body}), test.kind, test.state)
		}
		id := n.work(t, jobstore.NewJob{Kind: "greet", MaxAttempts: 1, Args: []byte(`{"name":"wait"}`)})
		<-inside
		n.stop()
		await(id, river.EventKindJobInterrupted, rivertype.JobStateAvailable)
	})
}

// hookedArgs have a hook that only River's executor calls.
type hookedArgs struct{}

func (hookedArgs) Kind() string { return "hooked" }

var hooked = make(chan string, 10)

func (hookedArgs) Hooks() []rivertype.Hook {
	return []rivertype.Hook{river.HookWorkBeginFunc(func(context.Context, *rivertype.JobRow) error {
		hooked <- "begin"
		return nil
	})}
}

// aliasedArgs have two kinds.
type aliasedArgs struct{}

func (aliasedArgs) Kind() string          { return "new-name" }
func (aliasedArgs) KindAliases() []string { return []string{"old-name"} }

func TestArgumentsWithHooksAndAliases(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil, func(o *jobs.Options) {
		o.Workers = river.NewWorkers()
		jobs.AddWorker(o.Workers, river.WorkFunc(func(context.Context, *river.Job[hookedArgs]) error { return nil }))
		jobs.AddWorker(o.Workers, river.WorkFunc(func(context.Context, *river.Job[aliasedArgs]) error { return nil }))
	})
	for _, kind := range []string{"hooked", "new-name", "old-name"} {
		n.finish(t, n.work(t, jobstore.NewJob{Kind: kind}), "completed")
	}
	if got := <-hooked; got != "begin" || len(hooked) != 0 {
		t.Errorf("got %q and %d more calls", got, len(hooked))
	}
	want := map[string]string{"hooked": "its arguments have hooks"}
	if got := n.RiverKinds(); len(got) != 1 || got["hooked"] != want["hooked"] {
		t.Errorf("River's client runs %v, want %v", got, want)
	}
}

func TestAddWorkerRejectsSecondWorker(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a second worker of a kind was accepted")
		}
	}()
	workers := river.NewWorkers()
	jobs.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[greetArgs]) error { return nil }))
	jobs.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[greetArgs]) error { return nil }))
}
