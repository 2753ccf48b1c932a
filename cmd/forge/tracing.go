package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/forge-scheduler/forge"
	"github.com/forge-scheduler/forge/internal/tracing"
)

// flushTimeout is how long a stopping node may take to export its last spans.
const flushTimeout = 2 * time.Second

// tracingOption returns the option of a node that exports its spans as the standard variables
// of OpenTelemetry say, and a function that exports the last spans. The option does nothing if
// the variables name no exporter.
func tracingOption(ctx context.Context, nodeID string, logger *slog.Logger) (option forge.Option, flush func(), err error) {
	enabled, err := tracingEnabled(os.Getenv)
	if err != nil || !enabled {
		return forge.WithTracing(nil), func() {}, err
	}
	exporter, err := otlptracehttp.New(ctx, exporterOptions(os.Getenv)...)
	if err != nil {
		return nil, nil, fmt.Errorf("export spans: %w", err)
	}
	described, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(
		attribute.String("service.name", "forge"), attribute.String("service.version", thisBuild().Version),
		attribute.String("service.instance.id", nodeID),
	), resource.WithFromEnv())
	if err != nil {
		return nil, nil, usageError(fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		logger.WarnContext(ctx, "spans were not exported", "error", err)
	}))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(described))
	flush = func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ending); err != nil {
			logger.WarnContext(ending, "the last spans were not exported", "error", err)
		}
	}
	return forge.WithTracing(provider), flush, nil
}

// exporterOptions are the exporter's where the variables say nothing: its own default is https.
func exporterOptions(env func(name string) string) []otlptracehttp.Option {
	if exporterEndpoint(env) != "" {
		return nil
	}
	return []otlptracehttp.Option{otlptracehttp.WithEndpointURL("http://localhost:4318/v1/traces")}
}

func exporterEndpoint(env func(name string) string) string {
	return cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), env("OTEL_EXPORTER_OTLP_ENDPOINT"))
}

// callersTrace returns the span of whoever runs the command, such as a job.
func callersTrace() tracing.Carrier {
	return tracing.NewCarrier(os.Getenv("TRACEPARENT"), os.Getenv("TRACESTATE"))
}

// tracingEnabled reports whether the variables name an exporter. The error names a variable
// whose value forge does not support.
func tracingEnabled(env func(name string) string) (bool, error) {
	endpoint, exporter := exporterEndpoint(env), env("OTEL_TRACES_EXPORTER")
	switch {
	case env("OTEL_SDK_DISABLED") == "true", exporter == "none", exporter == "" && endpoint == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, usageError(fmt.Errorf("OTEL_TRACES_EXPORTER=%s: want otlp or none", exporter))
	}
	protocol := cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), env("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf")
	if protocol != "http/protobuf" {
		return false, usageError(fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: want http/protobuf, which collectors receive on port 4318", protocol))
	}
	return true, nil
}
