// Package tracing creates the spans of a node, and carries their contexts in the metadata of
// jobs. A nil *Tracer creates no spans and costs nothing.
package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// scope is the instrumentation scope of all spans.
const scope = "github.com/forge-scheduler/forge"

// Attributes of spans.
const (
	keyRole      = attribute.Key("forge.role")
	keyTerm      = attribute.Key("forge.term")
	keyNode      = attribute.Key("forge.node")
	keyGap       = attribute.Key("forge.gap_ms")
	keyCron      = attribute.Key("forge.cron")
	keyTick      = attribute.Key("forge.tick")
	keyTicks     = attribute.Key("forge.ticks")
	keyVerdict   = attribute.Key("forge.verdict")
	keyReason    = attribute.Key("forge.reason")
	keyJob       = attribute.Key("forge.job")
	keyJobID     = attribute.Key("forge.job_id")
	keyJobs      = attribute.Key("forge.jobs")
	keyNodes     = attribute.Key("forge.nodes")
	keyQueue     = attribute.Key("forge.queue")
	keyAttempt   = attribute.Key("forge.attempt")
	keyOutcome   = attribute.Key("forge.outcome")
	keyDuplicate = attribute.Key("forge.duplicate")
)

// Tracer creates spans. Its methods may be called on nil.
type Tracer struct{ tracer trace.Tracer }

// New returns nil if provider is nil.
func New(provider trace.TracerProvider, version string) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{provider.Tracer(scope, trace.WithInstrumentationVersion(version))}
}

// Elected records that a node became the leader of a role. began is when it sent the
// statement that acquired the term. gap is the time without a leader before it, negative if
// it is unknown.
func (t *Tracer) Elected(role, node string, term int64, began time.Time, gap time.Duration) {
	if t == nil {
		return
	}
	attributes := []attribute.KeyValue{keyRole.String(role), keyNode.String(node), keyTerm.Int64(term)}
	if gap >= 0 {
		attributes = append(attributes, keyGap.Int64(gap.Milliseconds()))
	}
	t.root("election "+role, began, attributes).End()
}

// Assigned records that a leader offered jobs to nodes, in one span for all of them.
func (t *Tracer) Assigned(term int64, began time.Time, jobs, nodes int, err error) {
	if t == nil {
		return
	}
	end(t.root("assign", began, []attribute.KeyValue{keyTerm.Int64(term), keyJobs.Int(jobs), keyNodes.Int(nodes)}), err)
}

// root starts a span without a parent.
func (t *Tracer) root(name string, began time.Time, attributes []attribute.KeyValue) trace.Span {
	_, span := t.tracer.Start(context.Background(), name, trace.WithNewRoot(), trace.WithTimestamp(began), trace.WithAttributes(attributes...))
	return span
}

// end ends a span with the error, if there is one.
func end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
