package crons

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/forge-scheduler/forge/internal/cronstore"
	"github.com/forge-scheduler/forge/internal/pgtest"
	"github.com/forge-scheduler/forge/internal/tracing"
)

// Each row of the ledger has a span, which is the root of the trace of its job.
func TestTicksAreRootSpans(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"tidy": everySecond("allow")})
	recorder := tracetest.NewSpanRecorder()
	firer := newFirer(t, pool, newInserter(t, pool))
	firer.options.Tracer = tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), "test")
	rewind(t, pool, 10*time.Minute)
	stop := lead(t, firer, makeLeader(t, pool, "n1"))
	await(t, pool, 1, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = 'fired'`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]int{}
	for _, span := range recorder.Ended() {
		set := attribute.NewSet(span.Attributes()...)
		text := func(key attribute.Key) string { value, _ := set.Value(key); return value.AsString() }
		term, _ := set.Value("forge.term")
		if span.Name() != "tick tidy" || span.Parent().IsValid() || text("forge.cron") != "tidy" || term.AsInt64() != 1 {
			t.Errorf("got the span %s with the parent %v and %v", span.Name(), span.Parent(), span.Attributes())
		}
		if span.Status().Code == codes.Error {
			continue // the end of the term
		}
		verdicts[text("forge.verdict")]++
		if count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE tick = $1::timestamptz AND verdict = $2`, text("forge.tick"), text("forge.verdict")) != 1 {
			t.Errorf("the ledger has no row of %v", span.Attributes())
		}
		id, fired := set.Value("forge.job_id")
		if !fired {
			continue
		}
		parent := "00-" + span.SpanContext().TraceID().String() + "-" + span.SpanContext().SpanID().String() + "-01"
		if count(t, pool, `SELECT count(*) FROM river_job WHERE id = $1 AND metadata ->> 'traceparent' = $2`, id.AsInt64(), parent) != 1 {
			t.Errorf("job %d has not the traceparent %s", id.AsInt64(), parent)
		}
	}
	for _, verdict := range []cronstore.Verdict{cronstore.Fired, cronstore.CaughtUp, cronstore.SkippedLimit} {
		rows := count(t, pool, `SELECT count(*) FROM forge_cron_ticks WHERE verdict = $1`, verdict)
		if got := int64(verdicts[string(verdict)]); got == 0 || got != rows {
			t.Errorf("%d spans have the verdict %s, want %d", got, verdict, rows)
		}
	}
}

// The spans of a transaction that failed end with its error.
func TestTickSpansOfFailedTransaction(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	traces := tickTraces{tracer: tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), "test")}
	rows := []cronstore.Tick{{Cron: "tidy", Tick: time.Unix(1, 0), Verdict: cronstore.Fired}}
	traces.start(rows[0], map[string]any{})
	traces.finish(rows, errors.Join(&pgconn.PgError{Message: "deposed"}))
	ended := recorder.Ended()
	if len(ended) != 1 || ended[0].Status().Code != codes.Error || len(traces.started) > 0 {
		t.Errorf("got the spans %v", ended)
	}
	if slices.ContainsFunc(ended[0].Attributes(), func(a attribute.KeyValue) bool { return a.Key == "forge.verdict" }) {
		t.Error("the span of a tick that was not recorded has a verdict")
	}
}

// A run on request has the span of its tick, whose parent is the span of the request.
func TestRunOnRequestHasTickSpan(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	apply(t, pool, "h1", map[string]cronstore.Spec{"tidy": everySecond("allow")})
	recorder := tracetest.NewSpanRecorder()
	manual := manualOn(t, pool)
	manual.Tracer, manual.NodeID = tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), "test"), "n1"
	caller := tracing.NewCarrier("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "")
	row, err := manual.Trigger(caller.Into(t.Context()), cronstore.Trigger{Cron: "tidy", By: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	ran, err := manual.Backfill(caller.Into(t.Context()), cronstore.Backfill{Cron: "tidy", Ticks: []time.Time{row.Tick.Add(-time.Hour)}}, "ada", nil)
	if err != nil || ran != 1 {
		t.Fatalf("%d ticks ran, %v", ran, err)
	}
	if _, err := manual.Trigger(t.Context(), cronstore.Trigger{Cron: "none", By: "ada"}); err == nil {
		t.Error("triggered a cron that does not exist")
	}
	spans := recorder.Ended()
	if len(spans) != 2 {
		t.Fatalf("got the spans %v", spans)
	}
	for _, span := range spans {
		set := attribute.NewSet(span.Attributes()...)
		id, _ := set.Value("forge.job_id")
		parent := "00-" + span.SpanContext().TraceID().String() + "-" + span.SpanContext().SpanID().String() + "-01"
		if span.Name() != "tick tidy" || span.Parent().SpanID().String() != "00f067aa0ba902b7" || set.HasValue("forge.term") ||
			count(t, pool, `SELECT count(*) FROM river_job WHERE id = $1 AND metadata ->> 'traceparent' = $2`, id.AsInt64(), parent) != 1 {
			t.Errorf("got the span %s with the parent %v and %v", span.Name(), span.Parent(), span.Attributes())
		}
	}
}
