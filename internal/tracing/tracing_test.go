package tracing

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river/rivertype"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestNewCarrier(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ parent, state, wantParent, wantState string }{
		"valid":             {parent, "vendor=a", parent, "vendor=a"},
		"not sampled":       {strings.TrimSuffix(parent, "1") + "0", "", strings.TrimSuffix(parent, "1") + "0", ""},
		"other flags":       {strings.TrimSuffix(parent, "01") + "03", "", parent, ""},
		"later version":     {"01" + strings.TrimPrefix(parent, "00") + "-more", "", parent, ""},
		"invalid state":     {parent, "no state", parent, ""},
		"long state":        {parent, "vendor=" + strings.Repeat("a", 600), parent, ""},
		"invalid version":   {"ff" + strings.TrimPrefix(parent, "00"), "", "", ""},
		"additional field":  {parent + "-more", "", "", ""},
		"upper case":        {strings.ToUpper(parent), "", "", ""},
		"zero trace":        {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "", "", ""},
		"zero span":         {"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", "", "", ""},
		"too few fields":    {"00-4bf92f3577b34da6a3ce929d0e0e4736", "vendor=a", "", ""},
		"end of a comment":  {parent + "*/ DROP TABLE", "", "", ""},
		"without a version": {"", "", "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := NewCarrier(test.parent, test.state); got.Parent != test.wantParent || got.State != test.wantState {
				t.Errorf("NewCarrier(%q, %q) = %+v, want %q, %q", test.parent, test.state, got, test.wantParent, test.wantState)
			}
		})
	}
}

func TestCarrierInMetadata(t *testing.T) {
	t.Parallel()
	carrier := NewCarrier(parent, "vendor=a")
	for metadata, want := range map[string]string{
		"":                      `{"traceparent":"` + parent + `","tracestate":"vendor=a"}`,
		"{}":                    `{"traceparent":"` + parent + `","tracestate":"vendor=a"}`,
		`{"traceparent":"old"}`: `{"traceparent":"` + parent + `","tracestate":"vendor=a"}`,
		`{"a":1}`:               `{"a":1,"traceparent":"` + parent + `","tracestate":"vendor=a"}`,
		`[1]`:                   `[1]`,
		`no JSON`:               `no JSON`,
	} {
		if got := string(carrier.putInto([]byte(metadata))); got != want {
			t.Errorf("putInto(%s) = %s, want %s", metadata, got, want)
		}
	}
	if got := FromMetadata([]byte(`{"traceparent": "` + parent + `", "tracestate": "vendor=a"}`)); got != carrier {
		t.Errorf("FromMetadata = %+v, want %+v", got, carrier)
	}
	if got := FromMetadata([]byte(`{"a": {"traceparent": "` + parent + `"}, "traceparent": 7}`)); got != (Carrier{}) {
		t.Errorf("FromMetadata = %+v, want none", got)
	}
}

// A trace state may contain what ends a comment.
func TestCommentIsEscaped(t *testing.T) {
	t.Parallel()
	got := NewCarrier(parent, "vendor=*/'").Comment()
	if want := "/*traceparent='" + parent + "',tracestate='vendor%3D%2A%2F%27'*/"; got != want {
		t.Errorf("the comment is %s, want %s", got, want)
	}
}

// cheapJob is a job as most are: without metadata of a trace.
var cheapJob = &rivertype.JobRow{ID: 7, Kind: "greet", Attempt: 1, Metadata: []byte(`{"forge:cron":"nightly"}`)}

// untraced does all that a node without tracing does for a job, from its tick to its end.
func untraced(tracer *Tracer, observer prometheus.Observer) {
	tick := tracer.NewTick(Carrier{}, "nightly", time.Time{}, 1, 7, "node-a")
	tick.Recorded("fired", "", 7)
	tracer.Assigned(7, time.Time{}, 1, 1, nil)
	attempt := tracer.StartAttempt(cheapJob, "node-a")
	attempt.OfCron("nightly", "", 7)
	_ = attempt.Context(context.Background())
	_ = attempt.Carrier()
	attempt.Observe(observer, 1)
	attempt.End("completed", nil, nil, false, "")
}

func TestNoTracerAllocatesNothing(t *testing.T) { //nolint:paralleltest // AllocsPerRun
	observer := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took"})
	if got := testing.AllocsPerRun(100, func() { untraced(nil, observer) }); got != 0 {
		t.Errorf("a job without tracing allocates %v times, want 0", got)
	}
	handler := slog.DiscardHandler
	if got := (*Tracer)(nil).LogHandler(handler); got != handler {
		t.Errorf("the log handler is %T, want the one that was given", got)
	}
}

// BenchmarkNoTracer measures what tracing costs a job while it is off.
func BenchmarkNoTracer(b *testing.B) {
	observer := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took"})
	b.ReportAllocs()
	for b.Loop() {
		untraced(nil, observer)
	}
}

// BenchmarkInsert measures what the span of an insert costs.
func BenchmarkInsert(b *testing.B) {
	tracer := New(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample())), "test")
	insert := func(context.Context) ([]*rivertype.JobInsertResult, error) { return nil, nil }
	b.ReportAllocs()
	for b.Loop() {
		params := []*rivertype.JobInsertParams{{Kind: "greet", Queue: "default"}}
		if _, err := tracer.Insert(b.Context(), params, insert); err != nil {
			b.Fatal(err)
		}
	}
}

// The jobs of a batch share a span. One with a trace of its own keeps it.
func TestInsertOfManyJobs(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	tracer := New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), "test")
	params := []*rivertype.JobInsertParams{
		{Kind: "a"}, {Kind: "b", Metadata: []byte(`{"traceparent":"` + parent + `"}`)}, {Kind: "c", Metadata: []byte(`{"own":1}`)},
	}
	_, err := tracer.Insert(t.Context(), params, func(ctx context.Context) ([]*rivertype.JobInsertResult, error) {
		if !trace.SpanContextFromContext(ctx).IsValid() {
			t.Error("the insert has no span in its context")
		}
		return make([]*rivertype.JobInsertResult, 3), nil // as of a COPY
	})
	if err != nil {
		t.Fatal(err)
	}
	spans := recorder.Ended()
	if len(spans) != 1 {
		t.Fatalf("got %d spans, want 1", len(spans))
	}
	own := carrierOf(spans[0].SpanContext())
	for i, want := range []string{own.Parent, parent, own.Parent} {
		if got := FromMetadata(params[i].Metadata).Parent; got != want {
			t.Errorf("job %d has the parent %s, want %s", i, got, want)
		}
	}
}
