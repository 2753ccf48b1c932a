package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	tracereceiver "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const tracedCluster = unhurried + `
[jobs.hello]
kind = "shell"
command = ["sh", "-c", "echo $TRACEPARENT"]

[[crons]]
name = "pulse"
schedule = "@every 1s"
command = ["true"]

[[crons]]
name = "yearly"
schedule = "@yearly"
command = ["true"]
`

const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
)

// A node exports its spans over OTLP. The receiver is the test's own, or the OpenTelemetry
// collector's if OTLP_COLLECTOR is the program that make test-collector builds.
func TestSpansReachCollector(t *testing.T) {
	t.Parallel()
	c := newCluster(t, tracedCluster)
	received := &receivedSpans{}
	c.startProgram(forgeBinary(t), "a", "OTEL_EXPORTER_OTLP_ENDPOINT="+received.listen(t), "OTEL_BSP_SCHEDULE_DELAY=100",
		"OTEL_RESOURCE_ATTRIBUTES=deployment.environment=test")
	c.awaitRoles("a")

	requested := fmt.Sprint(decode[struct {
		ID int64 `json:"id"`
	}](t, c.postTraced(t, "a", "/api/v1/jobs", `{"kind":"hello"}`)).ID)
	inserted := received.await(t, "enqueue hello", func(s *span) bool { return s.attribute("forge.job_id") == requested })
	if got := hex.EncodeToString(inserted.TraceId) + hex.EncodeToString(inserted.ParentSpanId); got != callersTrace+callersSpan {
		t.Errorf("the insert of a request has the trace and parent %s", got)
	}
	received.await(t, "run hello", func(s *span) bool {
		return s.attribute("forge.job_id") == requested && slices.Equal(s.TraceId, inserted.TraceId) && slices.Equal(s.ParentSpanId, inserted.SpanId)
	})
	within := []string{"FORGE_DATABASE_URL=" + c.url, "TRACEPARENT=00-" + callersTrace + "-" + callersSpan + "-01"}
	for _, command := range []string{"job enqueue hello", "cron trigger yearly"} {
		if _, stderr, code := forgeWith(t, within, strings.Fields(command)...); code != 0 {
			t.Fatalf("forge %s: exit %d %s", command, code, stderr)
		}
	}
	c.postTraced(t, "a", "/api/v1/crons/yearly/trigger", "{}")
	fromCaller := func(s *span) bool {
		return hex.EncodeToString(s.TraceId)+hex.EncodeToString(s.ParentSpanId) == callersTrace+callersSpan
	}
	received.await(t, "run yearly", fromCaller) // of the command, which creates no spans
	triggered := received.await(t, "tick yearly", fromCaller)
	insertion := received.await(t, "enqueue yearly", func(s *span) bool { return slices.Equal(s.ParentSpanId, triggered.SpanId) })
	received.await(t, "run yearly", func(s *span) bool {
		return slices.Equal(s.ParentSpanId, insertion.SpanId) && s.attribute("forge.job_id") == triggered.attribute("forge.job_id")
	})
	if n := c.number(`SELECT count(*) FROM river_job WHERE kind = 'yearly' AND metadata ->> 'traceparent' LIKE '00-` + callersTrace + `-%'`); n != 2 {
		t.Errorf("%d of 2 triggered runs have the caller's trace", n)
	}
	id := c.number(`SELECT max(id) FROM river_job WHERE kind = 'hello'`)
	ran := received.await(t, "run hello", func(s *span) bool { return s.attribute("forge.job_id") == fmt.Sprint(id) })
	if got := hex.EncodeToString(ran.TraceId) + hex.EncodeToString(ran.ParentSpanId); got != callersTrace+callersSpan {
		t.Errorf("the attempt of an enqueued job has the trace and parent %s", got)
	}
	eventually(t, "the output of the job", func() bool {
		out, _, _ := c.forge("job", "logs", fmt.Sprint(id))
		return strings.Contains(out, "00-"+callersTrace+"-"+hex.EncodeToString(ran.SpanId)+"-01")
	})

	tick := received.await(t, "tick pulse", func(s *span) bool { return s.attribute("forge.verdict") == "fired" })
	if len(tick.ParentSpanId) > 0 || tick.attribute("forge.term") != "1" {
		t.Errorf("the tick has the parent %x and the term %s", tick.ParentSpanId, tick.attribute("forge.term"))
	}
	received.await(t, "run pulse", func(s *span) bool {
		return slices.Equal(s.TraceId, tick.TraceId) && slices.Equal(s.ParentSpanId, tick.SpanId) && s.attribute("forge.outcome") == "completed"
	})
	received.await(t, "election scheduler", func(s *span) bool { return s.attribute("forge.node") == "a" })
	received.await(t, "assign", func(s *span) bool { return s.attribute("forge.jobs") == "1" })
	for key, want := range map[string]string{"service.name": "forge", "service.instance.id": "a", "deployment.environment": "test"} {
		if got := text(tick.resource, key); got != want {
			t.Errorf("the resource has %s = %q, want %q", key, got, want)
		}
	}
	wantExemplars(t, c.nodes["a"].listen())
	c.stopAll()
}

// postTraced sends a request to the API in the caller's trace, and returns the answer.
func (c *cluster) postTraced(t *testing.T, node, path, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.nodes[node].listen()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-"+callersTrace+"-"+callersSpan+"-01")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answered, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("POST %s: %s %s %v", path, response.Status, answered, err)
	}
	return string(answered)
}

// wantExemplars wants /metrics to have the traces of attempts in OpenMetrics.
func wantExemplars(t *testing.T, address string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || !regexp.MustCompile(`(?m)^forge_job_duration_seconds_bucket\{kind="hello".* # \{.*trace_id="`+callersTrace).Match(body) {
		t.Errorf("no exemplar of the caller's trace: %v\n%s", err, body)
	}
}

// span is a received span with the attributes of its resource.
type span struct {
	*trace.Span

	resource []*common.KeyValue
}

func (s *span) attribute(key string) string { return text(s.Attributes, key) }

func text(attributes []*common.KeyValue, key string) string {
	for _, a := range attributes {
		if a.Key == key {
			if number, ok := a.Value.Value.(*common.AnyValue_IntValue); ok {
				return fmt.Sprint(number.IntValue)
			}
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// receivedSpans are the spans that a receiver got.
type receivedSpans struct {
	refresh func() error // reads what the collector has printed; nil for the test's own receiver

	mu    sync.Mutex
	spans []*span
}

// listen starts the receiver and returns its URL.
func (r *receivedSpans) listen(t *testing.T) (url string) {
	t.Helper()
	if program := os.Getenv("OTLP_COLLECTOR"); program != "" {
		return r.collect(t, program)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err == nil {
			err = r.add(body)
		}
		if err != nil || request.URL.Path != "/v1/traces" || request.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s: %v", request.URL.Path, request.Header, err)
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// collect starts the collector's receiver, which prints its URL and then each batch.
func (r *receivedSpans) collect(t *testing.T, program string) (url string) {
	t.Helper()
	p := launchProgram(t, program, nil)
	eventually(t, "the collector listens", func() bool {
		url, _, _ = strings.Cut(p.output.String(), "\n")
		return strings.HasPrefix(url, "http://")
	})
	read := 1 // lines
	r.refresh = func() error {
		lines := strings.SplitAfter(p.output.String(), "\n")
		for ; read < len(lines)-1; read++ {
			body, err := base64.StdEncoding.DecodeString(strings.TrimSpace(lines[read]))
			if err == nil {
				err = r.add(body)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return url
}

func (r *receivedSpans) add(body []byte) error {
	var request tracereceiver.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, &span{s, resource.Resource.Attributes})
			}
		}
	}
	return nil
}

// await waits for a span.
func (r *receivedSpans) await(t *testing.T, name string, want func(*span) bool) (found *span) {
	t.Helper()
	eventually(t, "the span "+name, func() bool {
		if r.refresh != nil {
			if err := r.refresh(); err != nil {
				t.Fatal(err)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		i := slices.IndexFunc(r.spans, func(s *span) bool { return s.Name == name && want(s) })
		if i >= 0 {
			found = r.spans[i]
		}
		return i >= 0
	})
	return found
}
