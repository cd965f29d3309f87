package reconcile

import (
	"context"
	"encoding/json"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
)

// tracer makes the spans of passes. They cost next to nothing until main installs an exporter.
var tracer = otel.Tracer("agent-sandbox-controller")

// traceFormat is W3C Trace Context, in an annotation rather than in HTTP headers.
var traceFormat propagation.TraceContext

// startSpan starts the span of a pass, below the trace that obj belongs to, if it says so.
func startSpan(ctx context.Context, name string, obj client.Object) (context.Context, trace.Span) {
	carrier := propagation.MapCarrier{}
	_ = json.Unmarshal([]byte(obj.GetAnnotations()[proto.AnnotationTraceContext]), &carrier) // without one a trace begins here
	return tracer.Start(traceFormat.Extract(ctx, carrier), name)
}

// traceContext returns the value of the annotation trace-context for an object that has none yet, "" when nothing is
// traced.
func traceContext(ctx context.Context, obj client.Object) string {
	if obj.GetAnnotations()[proto.AnnotationTraceContext] != "" {
		return ""
	}
	carrier := propagation.MapCarrier{}
	traceFormat.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return ""
	}
	value, _ := json.Marshal(carrier) // a map of strings
	return string(value)
}
