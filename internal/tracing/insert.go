package tracing

import (
	"context"
	"time"

	"github.com/riverqueue/river/rivertype"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Insert inserts jobs in a span, and puts the span's context into their metadata. The parent
// of the span is the traceparent in the metadata of a single job, or the span of ctx. Many
// jobs have one span; those with a traceparent of their own keep it. Insert is called on a
// Tracer that is not nil.
func (t *Tracer) Insert(ctx context.Context, params []*rivertype.JobInsertParams, insert func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
	if len(params) == 0 {
		return insert(ctx)
	}
	first := params[0]
	name, attributes := "enqueue "+first.Kind, []attribute.KeyValue{keyJob.String(first.Kind), keyQueue.String(first.Queue)}
	if len(params) > 1 {
		name, attributes = "enqueue jobs", []attribute.KeyValue{keyJobs.Int(len(params))}
	} else if sc := FromMetadata(first.Metadata).spanContext(); sc.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
	if carrier := carrierOf(span.SpanContext()); carrier.Parent != "" {
		for _, job := range params {
			if len(params) == 1 || FromMetadata(job.Metadata).Parent == "" {
				job.Metadata = carrier.putInto(job.Metadata)
			}
		}
	}
	results, err := insert(ctx)
	if len(params) == 1 && len(results) == 1 && results[0] != nil && results[0].Job != nil {
		span.SetAttributes(keyJobID.Int64(results[0].Job.ID))
		if results[0].UniqueSkippedAsDuplicate {
			span.SetAttributes(keyDuplicate.Bool(true))
		}
	}
	end(span, err)
	return results, err
}

// Tick is the span of a tick. Its methods may be called on nil.
type Tick struct{ span trace.Span }

// NewTick starts the span of a tick, the parent of the spans of its job. Without a parent, it is
// the root of the trace. count is the number of ticks that its row of the ledger stands for, and
// term is 0 for a tick that runs by request.
func (t *Tracer) NewTick(parent Carrier, cron string, at time.Time, count int64, term int64, node string) *Tick {
	if t == nil {
		return nil
	}
	attributes := []attribute.KeyValue{
		keyCron.String(cron), keyTick.String(at.UTC().Format(time.RFC3339Nano)), keyNode.String(node),
	}
	if term != 0 {
		attributes = append(attributes, keyTerm.Int64(term))
	}
	if count > 1 {
		attributes = append(attributes, keyTicks.Int64(count))
	}
	_, span := t.tracer.Start(parent.Into(context.Background()), "tick "+cron,
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
	return &Tick{span}
}

// Carrier returns the context of the span.
func (t *Tick) Carrier() Carrier {
	if t == nil {
		return Carrier{}
	}
	return carrierOf(t.span.SpanContext())
}

// Recorded ends the span of a tick whose row was committed. jobID is 0 if it did not fire.
func (t *Tick) Recorded(verdict, reason string, jobID int64) {
	if t == nil {
		return
	}
	t.span.SetAttributes(keyVerdict.String(verdict))
	if reason != "" {
		t.span.SetAttributes(keyReason.String(reason))
	}
	if jobID != 0 {
		t.span.SetAttributes(keyJobID.Int64(jobID))
	}
	t.span.End()
}

// Failed ends the span of a tick whose transaction failed.
func (t *Tick) Failed(err error) {
	if t != nil {
		end(t.span, err)
	}
}
