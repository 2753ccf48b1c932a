package tracing

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river/rivertype"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Attempt is the trace of an attempt. It is nil for an attempt without a trace, and its
// methods may be called on nil.
type Attempt struct {
	span    trace.Span
	ctx     context.Context //nolint:containedctx // for its values
	carrier Carrier
}

// StartAttempt starts the span of an attempt of a job. The first attempt is a child of the
// span that inserted the job. Later attempts are roots with a link to that span. Without a
// Tracer, the attempt carries the traceparent of the job.
func (t *Tracer) StartAttempt(job *rivertype.JobRow, node string) *Attempt {
	carrier := FromMetadata(job.Metadata)
	if t == nil {
		if carrier.Parent == "" {
			return nil
		}
		return &Attempt{carrier: carrier}
	}
	ctx, inserted := context.Background(), carrier.spanContext()
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		keyJob.String(job.Kind), keyJobID.Int64(job.ID), keyAttempt.Int(job.Attempt), keyQueue.String(job.Queue), keyNode.String(node),
	)}
	switch {
	case inserted.IsValid() && job.Attempt <= 1:
		ctx = trace.ContextWithRemoteSpanContext(ctx, inserted)
	case inserted.IsValid():
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: inserted}))
	}
	ctx, span := t.tracer.Start(ctx, "run "+job.Kind, options...)
	return &Attempt{span: span, ctx: ctx, carrier: carrierOf(span.SpanContext())}
}

// OfCron adds the cron, tick and term of the attempt's job.
func (a *Attempt) OfCron(cron, tick string, term int64) {
	if a != nil && a.span != nil {
		a.span.SetAttributes(keyCron.String(cron), keyTick.String(tick), keyTerm.Int64(term))
	}
}

// End ends the span. failed reports that the outcome is a failure.
func (a *Attempt) End(outcome string, exitCode, statusCode *int, failed bool, message string) {
	if a == nil || a.span == nil {
		return
	}
	a.span.SetAttributes(keyOutcome.String(outcome))
	if exitCode != nil {
		a.span.SetAttributes(attribute.Int("process.exit.code", *exitCode))
	}
	if statusCode != nil {
		a.span.SetAttributes(attribute.Int("http.response.status_code", *statusCode))
	}
	var err error
	if failed {
		err = errors.New(message)
	}
	end(a.span, err)
}

// Carrier returns what the attempt passes on.
func (a *Attempt) Carrier() Carrier {
	if a == nil {
		return Carrier{}
	}
	return a.carrier
}

// Value returns the value of a key of OpenTelemetry for the context of the attempt, or nil.
func (a *Attempt) Value(key any) any {
	if a == nil || a.ctx == nil {
		return nil
	}
	return a.ctx.Value(key)
}

// Context returns ctx with the span.
func (a *Attempt) Context(ctx context.Context) context.Context {
	if a == nil || a.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, a.span)
}

// Observe observes a value with the attempt as its exemplar if its span is sampled.
func (a *Attempt) Observe(observer prometheus.Observer, value float64) {
	if labels := a.exemplar(); labels != nil {
		if with, ok := observer.(prometheus.ExemplarObserver); ok {
			with.ObserveWithExemplar(value, labels)
			return
		}
	}
	observer.Observe(value)
}

func (a *Attempt) exemplar() prometheus.Labels {
	if a == nil || a.span == nil || !a.span.SpanContext().IsSampled() {
		return nil
	}
	sc := a.span.SpanContext()
	return prometheus.Labels{"trace_id": sc.TraceID().String(), "span_id": sc.SpanID().String()}
}

// logHandler adds the ids of the context's span to records.
type logHandler struct{ slog.Handler }

// LogHandler returns a handler that adds trace_id and span_id to the records whose context
// has a span. It returns handler if the Tracer is nil.
func (t *Tracer) LogHandler(handler slog.Handler) slog.Handler {
	if t == nil {
		return handler
	}
	return logHandler{handler}
}

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, record slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		record = record.Clone()
		record.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name)}
}
