package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/internal/tracing"
	"github.com/forge-scheduler/forge/jobs"
)

const someParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// traced returns an option that records spans. The log is written to log, if it is not nil.
func traced(log *lockedBuffer) (*tracetest.SpanRecorder, func(*jobs.Options)) {
	recorder := tracetest.NewSpanRecorder()
	tracer := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), "test")
	return recorder, func(o *jobs.Options) {
		o.Tracer = tracer
		if log != nil {
			o.Logger = slog.New(tracer.LogHandler(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		}
	}
}

// spanNamed returns the n-th span of that name, counted from 0, once it has ended.
func spanNamed(t *testing.T, recorder *tracetest.SpanRecorder, name string, n int) sdktrace.ReadOnlySpan {
	t.Helper()
	var found []sdktrace.ReadOnlySpan
	eventually(t, func() bool {
		found = slices.DeleteFunc(recorder.Ended(), func(span sdktrace.ReadOnlySpan) bool { return span.Name() != name })
		return len(found) > n
	}, func() string { return "no span " + name })
	return found[n]
}

// lockedBuffer is a buffer that several goroutines may write to.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// The first attempt is a child of the insert, a retry is a root that links to it, and the
// worker's context has the span.
func TestTraceFromInsertToAttempts(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		var log lockedBuffer
		recorder, option := traced(&log)
		inWorker := make(chan trace.SpanContext, 2)
		n := startNode(t, nil, option, add.workFunc(func(ctx context.Context, job *river.Job[greetArgs]) error {
			inWorker <- trace.SpanContextFromContext(ctx)
			if job.Attempt == 1 {
				return errors.New("once more")
			}
			return nil
		}))
		caller := tracing.NewCarrier(someParent, "")
		metadata := map[string]any{}
		caller.AddTo(metadata)
		id := n.work(t, jobstore.NewJob{Kind: "greet", Args: []byte(`{}`), Metadata: metadata})
		eventually(t, func() bool { return n.column(t, id, "attempt = 1 AND state <> 'running'") == "true" }, func() string { return "the first attempt did not end" })
		exec(t, n.pool, `UPDATE river_job SET state = 'available', scheduled_at = now() WHERE id = $1`, id)
		n.offer(t, id)
		n.finish(t, id, "completed")

		inserted := spanNamed(t, recorder, "enqueue greet", 0)
		if got := inserted.Parent().SpanID().String(); !strings.Contains(someParent, got) {
			t.Errorf("the insert has the parent %s, want that of the caller", got)
		}
		first, second := spanNamed(t, recorder, "run greet", 0), spanNamed(t, recorder, "run greet", 1)
		if first.Parent().SpanID() != inserted.SpanContext().SpanID() || first.SpanContext().TraceID() != inserted.SpanContext().TraceID() {
			t.Errorf("the first attempt has the parent %v, want %v", first.Parent(), inserted.SpanContext())
		}
		if second.Parent().IsValid() || len(second.Links()) != 1 || second.Links()[0].SpanContext.SpanID() != inserted.SpanContext().SpanID() {
			t.Errorf("the retry has the parent %v and the links %v, want none and the insert", second.Parent(), second.Links())
		}
		for _, span := range []sdktrace.ReadOnlySpan{first, second} {
			if got := <-inWorker; got.SpanID() != span.SpanContext().SpanID() {
				t.Errorf("the worker's context has the span %s, want %s", got.SpanID(), span.SpanContext().SpanID())
			}
			for _, want := range []string{`"trace_id":"` + span.SpanContext().TraceID().String(), `"span_id":"` + span.SpanContext().SpanID().String()} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log lacks %s: %s", want, log.String())
				}
			}
		}
		wantExemplar(t, n, second.SpanContext().TraceID().String())
	})
}

// wantExemplar wants a histogram of durations whose exemplar is the trace.
func wantExemplar(t *testing.T, n *node, traceID string) {
	t.Helper()
	families, err := n.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "forge_job_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, bucket := range metric.GetHistogram().GetBucket() {
				for _, label := range bucket.GetExemplar().GetLabel() {
					if label.GetValue() == traceID {
						return
					}
				}
			}
		}
	}
	t.Errorf("no duration has the exemplar %s", traceID)
}

// Jobs without code pass their trace on.
func TestTraceIsPassedOn(t *testing.T) {
	t.Parallel()
	headers := make(chan http.Header, 2)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header }))
	t.Cleanup(server.Close)
	configured := map[string]config.Job{
		"shell": once(shell(`echo "$TRACEPARENT $TRACESTATE"`)),
		"http":  once(config.Job{Kind: config.KindHTTP, URL: server.URL, Headers: map[string]string{"traceparent": "forged", "tracestate": "forged"}}),
		"sql":   once(config.Job{Kind: config.KindSQL, Statement: "SELECT query FROM pg_stat_activity WHERE pid = pg_backend_pid() -- no more"}),
	}
	recorder, option := traced(nil)
	for name, test := range map[string]struct {
		options []func(*jobs.Options)
		want    func(t *testing.T, kind string) string // the traceparent
	}{
		"with tracing": {[]func(*jobs.Options){option}, func(t *testing.T, kind string) string {
			t.Helper()
			sc := spanNamed(t, recorder, "run "+kind, 0).SpanContext()
			return "00-4bf92f3577b34da6a3ce929d0e0e4736-" + sc.SpanID().String() + "-01"
		}},
		"without": {nil, func(*testing.T, string) string { return someParent }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := startNode(t, configured, test.options...)
			output := func(kind string) string {
				id := n.work(t, jobstore.NewJob{Kind: kind, Metadata: map[string]any{"traceparent": someParent, "tracestate": "vendor=a"}})
				if done := n.finish(t, id, "completed", "discarded"); done.State != "completed" {
					t.Fatalf("%s: %+v", kind, done)
				}
				return n.logs(t, id, 1, jobstore.StreamStdout)
			}
			if got, want := output("shell"), test.want(t, "shell")+" vendor=a\n"; got != want {
				t.Errorf("the command has %q, want %q", got, want)
			}
			if got, want := output("sql"), "/*traceparent='"+test.want(t, "sql")+"',tracestate='vendor%3Da'*/"; !strings.Contains(got, want) {
				t.Errorf("the statement is %q, want the comment %q", got, want)
			}
		})
	}
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		n := startNode(t, configured)
		n.finish(t, n.work(t, jobstore.NewJob{Kind: "http", Metadata: map[string]any{"traceparent": someParent}}), "completed")
		if got := <-headers; got.Get("Traceparent") != someParent || got.Get("Tracestate") != "" {
			t.Errorf("the request has %q and %q, want %q and none", got.Get("Traceparent"), got.Get("Tracestate"), someParent)
		}
	})
}

// countingMiddleware is middleware of a program for inserts and workers.
type countingMiddleware struct {
	river.MiddlewareDefaults

	inserted, worked atomic.Int32
}

func (m *countingMiddleware) InsertMany(ctx context.Context, params []*rivertype.JobInsertParams, insert func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
	m.inserted.Add(int32(len(params)))
	for _, job := range params {
		job.Tags = append(job.Tags, "seen")
	}
	return insert(ctx)
}

func (m *countingMiddleware) Work(ctx context.Context, _ *rivertype.JobRow, work func(context.Context) error) error {
	m.worked.Add(1)
	return work(ctx)
}

// A program's middleware is called once for each insert, by the scheduler's inserter too, and
// once for each attempt.
func TestMiddlewareOfProgram(t *testing.T) {
	t.Parallel()
	onBothPaths(t, func(t *testing.T, add addWorker) {
		t.Helper()
		middleware := &countingMiddleware{}
		n := startNode(t, map[string]config.Job{"hello": shell("true")}, add.worker(func(context.Context) error { return nil }), func(o *jobs.Options) {
			o.Middleware = []rivertype.Middleware{middleware}
		})
		n.finish(t, n.work(t, jobstore.NewJob{Kind: "greet", Args: []byte(`{}`)}), "completed")
		n.finish(t, n.work(t, jobstore.NewJob{Kind: "hello"}), "completed")
		if inserted, worked := middleware.inserted.Load(), middleware.worked.Load(); inserted != 2 || worked != 2 {
			t.Errorf("the middleware saw %d inserts and %d attempts, want 2 and 2", inserted, worked)
		}
		silent, err := n.SilentInserter()
		if err != nil {
			t.Fatal(err)
		}
		id, err := silent.Insert(t.Context(), jobstore.NewJob{Kind: "hello"})
		if err != nil {
			t.Fatal(err)
		}
		if tags := n.column(t, id, "tags"); tags != "{seen}" {
			t.Errorf("the job of the scheduler has the tags %s, want {seen}", tags)
		}
	})
}

// A worker with resumable steps changes the executor in its first attempt.
func TestMiddlewareOfProgramWithResumableSteps(t *testing.T) {
	t.Parallel()
	middleware := &countingMiddleware{}
	n := startNode(t, nil, addWorker(jobs.AddWorker[greetArgs]).worker(func(ctx context.Context) error {
		river.ResumableStep(ctx, "one", nil, func(context.Context) error { return nil })
		return nil
	}), func(o *jobs.Options) { o.Middleware = []rivertype.Middleware{middleware} })
	for want := int32(1); want <= 2; want++ {
		n.finish(t, n.work(t, jobstore.NewJob{Kind: "greet", Args: []byte(`{}`)}), "completed")
		if got := middleware.worked.Load(); got != want {
			t.Errorf("the middleware was called %d times, want %d", got, want)
		}
	}
}
