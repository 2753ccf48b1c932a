package main

import (
	"errors"
	"net/http"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The library's own default is https.
func TestSpansGoToTheStandardEndpoint(t *testing.T) {
	t.Parallel()
	address := ""
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		address = r.URL.String()
		return nil, errors.New("not sent")
	})
	options := exporterOptions(func(string) string { return "" })
	client := otlptracehttp.NewClient(append(options, otlptracehttp.WithHTTPClient(&http.Client{Transport: transport}))...)
	_ = client.UploadTraces(t.Context(), []*trace.ResourceSpans{{}})
	if want := "http://localhost:4318/v1/traces"; address != want {
		t.Errorf("without an endpoint, spans go to %q, want %s", address, want)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		if got := exporterOptions(func(asked string) string { return map[string]string{name: "https://collector"}[asked] }); got != nil {
			t.Errorf("%s is overridden", name)
		}
	}
}
