package main

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// exportTraces sends the spans of passes over OTLP gRPC, to where the standard OTEL_EXPORTER_OTLP_* environment says. The
// returned function sends what is left.
func exportTraces(ctx context.Context) (flush func(context.Context) error, err error) {
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("--enable-tracing: %w", err)
	}
	provider := trace.NewTracerProvider(
		trace.WithBatcher(exporter),
		trace.WithResource(resource.NewSchemaless(attribute.String("service.name", "agent-sandbox-controller"))),
	)
	otel.SetTracerProvider(provider)
	return provider.Shutdown, nil
}
