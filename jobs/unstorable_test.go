package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/jobs"
)

// A result that PostgreSQL rejects fails its attempt, and delays no other result.
func TestResultThatCannotBeStoredFailsAttempt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ output, want string }{
		"half a pair":  {`"\ud800"`, "the job's result cannot be stored: ERROR: invalid input syntax for type json (SQLSTATE 22P02)"},
		"a number":     {`1e200000`, "the job's result cannot be stored: ERROR: value overflows numeric format (SQLSTATE 22003)"},
		"invalid UTF8": {"\"\xff\"", "the job's result cannot be stored: ERROR: invalid byte sequence for encoding \"UTF8\": 0xff (SQLSTATE 22021)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBothPaths(t, func(t *testing.T, add addWorker) {
				t.Helper()
				var together sync.WaitGroup
				together.Add(3)
				n := startNode(t, nil, add.workFunc(func(ctx context.Context, job *river.Job[greetArgs]) error {
					together.Done()
					together.Wait()
					if job.Args.Name == "good" {
						return river.RecordOutput(ctx, 7)
					}
					_, _ = io.WriteString(jobs.Output(ctx), "tried\n")
					return errors.Join(river.RecordOutput(ctx, json.RawMessage(test.output)), map[string]error{"failing": errors.New("failed")}[job.Args.Name])
				}))
				var ids []int64
				for _, name := range []string{"good", "bad", "failing"} {
					id, err := n.Insert(t.Context(), jobstore.NewJob{Kind: "greet", Args: []byte(`{"name":"` + name + `"}`), MaxAttempts: 1})
					if err != nil {
						t.Fatal(err)
					}
					ids = append(ids, id)
				}
				n.offer(t, ids...)
				if job := n.finish(t, ids[0], "completed"); string(job.Result) != "7" {
					t.Errorf("the good job has the result %s", job.Result)
				}
				for i, want := range map[int]string{1: test.want, 2: "failed"} {
					job := n.finish(t, ids[i], "discarded")
					if job.LastError != want || job.Result != nil || len(job.Attempts) != 1 ||
						job.Attempts[0].Outcome != jobstore.OutcomeFailed || job.Attempts[0].Error != want || job.Attempts[0].OutputBytes != 6 {
						t.Errorf("got %+v, want the error %q", job, want)
					}
				}
			})
		})
	}
}

// A job whose result PostgreSQL rejects is tried again as after any other failure of its kind.
func TestResultThatCannotBeStoredIsRetriedByKind(t *testing.T) {
	t.Parallel()
	far := time.Now().Add(48 * time.Hour)
	for name, add := range map[string]func(*river.Workers){
		"forge": func(w *river.Workers) { jobs.AddWorker(w, &laterWorker[greetArgs]{retry: far}) },
		"river": func(w *river.Workers) { jobs.AddWorker(w, &laterWorker[hookArgs]{retry: far}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := startNode(t, nil, func(o *jobs.Options) {
				o.Workers = river.NewWorkers()
				add(o.Workers)
			})
			job := n.finish(t, n.work(t, jobstore.NewJob{Kind: "greet", MaxAttempts: 2}), "retryable", "discarded")
			if got := job.ScheduledAt.Sub(far).Abs(); got > time.Second || len(job.Attempts) != 1 {
				t.Errorf("got %+v, want the next attempt to be due at %s", job, far)
			}
		})
	}
}

// laterWorker reports a result that cannot be stored.
type laterWorker[T river.JobArgs] struct {
	river.WorkerDefaults[T]

	retry time.Time
}

func (w *laterWorker[T]) NextRetry(*river.Job[T]) time.Time { return w.retry }

func (*laterWorker[T]) Work(ctx context.Context, _ *river.Job[T]) error {
	return river.RecordOutput(ctx, json.RawMessage(`"\ud800"`))
}

// hookArgs are greetArgs whose jobs River's client runs.
type hookArgs struct{ greetArgs }

func (hookArgs) Hooks() []rivertype.Hook {
	return []rivertype.Hook{river.HookWorkBeginFunc(func(context.Context, *rivertype.JobRow) error { return nil })}
}

// A worker that postpones its next attempt beyond what PostgreSQL or JSON can represent gets the
// latest time.
func TestNextRetryIsStorable(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		for _, far := range []time.Time{time.Unix(1<<60, 0), time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC)} {
			n := startNode(t, nil, func(o *jobs.Options) {
				o.Workers = river.NewWorkers()
				add(o.Workers, &pickyWorker{retry: far})
			})
			job := n.finish(t, n.work(t, jobstore.NewJob{Kind: "greet", MaxAttempts: 2}), "retryable")
			if want := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC); !job.ScheduledAt.Equal(want) {
				t.Errorf("the next attempt is due at %s, want %s", job.ScheduledAt, want)
			}
		}
	})
}
