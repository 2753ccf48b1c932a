package tracing

import (
	"bytes"
	"context"
	"encoding/hex"
	"net/url"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"
	"go.opentelemetry.io/otel/trace"
)

// The keys of a job's metadata, and the names of the HTTP headers. They are those of the W3C
// Trace Context recommendation, so that any client can set them.
const (
	KeyParent = "traceparent"
	KeyState  = "tracestate"
)

// maxState is the maximum length of a trace state that is passed on, as in the
// recommendation.
const maxState = 512

// Carrier is the context of a span as text. It is empty or valid.
type Carrier struct {
	Parent string // version 00 of traceparent
	State  string // tracestate, or empty
}

// NewCarrier returns an empty Carrier if parent is not a valid traceparent. It ignores an
// invalid state.
func NewCarrier(parent, state string) Carrier {
	sc, ok := parseParent(parent)
	if !ok {
		return Carrier{}
	}
	if parsed, err := trace.ParseTraceState(state); err == nil && len(state) <= maxState {
		sc = sc.WithTraceState(parsed)
	}
	return carrierOf(sc)
}

// FromMetadata returns the Carrier in the metadata of a job, which may come from anyone.
func FromMetadata(metadata []byte) Carrier {
	if !bytes.Contains(metadata, quotedParent) {
		return Carrier{}
	}
	found := gjson.GetManyBytes(metadata, KeyParent, KeyState)
	return NewCarrier(found[0].Str, found[1].Str)
}

var quotedParent = []byte(`"` + KeyParent + `"`)

// FromContext returns the Carrier of the span of a context.
func FromContext(ctx context.Context) Carrier { return carrierOf(trace.SpanContextFromContext(ctx)) }

// Into returns a context with the Carrier's span as the parent of others. The context is ctx if the
// Carrier is empty.
func (c Carrier) Into(ctx context.Context) context.Context {
	if sc := c.spanContext(); sc.IsValid() {
		return trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	return ctx
}

// AddTo adds the Carrier to the metadata of a job that is not encoded yet.
func (c Carrier) AddTo(metadata map[string]any) {
	if c.Parent == "" {
		return
	}
	metadata[KeyParent] = c.Parent
	if c.State != "" {
		metadata[KeyState] = c.State
	}
}

// putInto returns the metadata of a job with the Carrier. It returns metadata that is not a
// JSON object unchanged.
func (c Carrier) putInto(metadata []byte) []byte {
	if len(bytes.TrimSpace(metadata)) == 0 {
		metadata = []byte("{}")
	}
	if !gjson.ParseBytes(metadata).IsObject() {
		return metadata
	}
	added, err := sjson.SetBytes(metadata, KeyParent, c.Parent)
	if err == nil && c.State != "" {
		added, err = sjson.SetBytes(added, KeyState, c.State)
	}
	if err != nil {
		return metadata
	}
	return added
}

// Comment returns the Carrier as a comment of SQL in the format of sqlcommenter. It is empty
// if the Carrier is.
func (c Carrier) Comment() string {
	if c.Parent == "" {
		return ""
	}
	comment := "/*" + KeyParent + "='" + c.Parent + "'"
	if c.State != "" {
		comment += "," + KeyState + "='" + url.QueryEscape(c.State) + "'"
	}
	return comment + "*/"
}

// spanContext returns the context of the remote span. It is invalid if the Carrier is empty.
func (c Carrier) spanContext() trace.SpanContext {
	sc, ok := parseParent(c.Parent)
	if !ok {
		return trace.SpanContext{}
	}
	state, _ := trace.ParseTraceState(c.State) // NewCarrier has checked it
	return sc.WithTraceState(state)
}

func carrierOf(sc trace.SpanContext) Carrier {
	if !sc.IsValid() {
		return Carrier{}
	}
	parent := make([]byte, 0, 55)
	parent = append(parent, "00-"...)
	id, spanID := sc.TraceID(), sc.SpanID()
	parent = hex.AppendEncode(parent, id[:])
	parent = append(parent, '-')
	parent = hex.AppendEncode(parent, spanID[:])
	if sc.IsSampled() {
		parent = append(parent, "-01"...)
	} else {
		parent = append(parent, "-00"...)
	}
	return Carrier{Parent: string(parent), State: sc.TraceState().String()}
}

// parseParent parses a traceparent. Versions after 00 may add fields.
func parseParent(parent string) (trace.SpanContext, bool) {
	fields := strings.Split(parent, "-")
	if len(parent) > maxState || len(fields) < 4 || len(fields[0]) != 2 || len(fields[3]) != 2 || fields[0] == "ff" ||
		fields[0] == "00" && len(fields) > 4 || strings.ToLower(parent) != parent {
		return trace.SpanContext{}, false
	}
	version, err := hex.DecodeString(fields[0])
	traceID, traceErr := trace.TraceIDFromHex(fields[1])
	spanID, spanErr := trace.SpanIDFromHex(fields[2])
	flags, flagsErr := hex.DecodeString(fields[3])
	if err != nil || len(version) != 1 || traceErr != nil || spanErr != nil || flagsErr != nil {
		return trace.SpanContext{}, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled, Remote: true,
	}), true
}
