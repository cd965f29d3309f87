package reconcile

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

func TestTracing(t *testing.T) {
	const parent = "4bf92f3577b34da6a3ce929d0e0e4736"
	f := newFixture(t, newSandbox("fresh"), newSandbox("child", func(sb *agents.Sandbox) {
		sb.Annotations = map[string]string{proto.AnnotationTraceContext: `{"traceparent":"00-` + parent + `-00f067aa0ba902b7-01"}`}
	}))
	_, err := f.reconcile("fresh")
	require.NoError(t, err)
	assert.NotContains(t, f.sandbox("fresh").Annotations, proto.AnnotationTraceContext, "tracing is off")

	spans := tracetest.NewSpanRecorder()
	off := tracer
	tracer = trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("test")
	t.Cleanup(func() { tracer = off })
	for _, name := range []string{"fresh", "child"} {
		_, err = f.reconcile(name)
		require.NoError(t, err)
	}

	var carrier map[string]string
	require.NoError(t, json.Unmarshal([]byte(f.sandbox("fresh").Annotations[proto.AnnotationTraceContext]), &carrier))
	var names []string
	for _, span := range spans.Ended() {
		names = append(names, span.Name())
		if span.Name() != "ReconcileSandbox" {
			assert.Equal(t, span.Parent().TraceID(), span.SpanContext().TraceID())
		} else if span.Parent().IsValid() {
			assert.Equal(t, parent, span.SpanContext().TraceID().String())
		} else {
			assert.Contains(t, carrier["traceparent"], span.SpanContext().TraceID().String())
		}
	}
	pass := []string{"reconcilePVCs", "reconcilePod", "ReconcileSandbox"}
	assert.Equal(t, append(pass, pass...), names)
	assert.Contains(t, f.sandbox("child").Annotations[proto.AnnotationTraceContext], parent, "an object's own trace is kept")
	assert.NotContains(t, f.pod("child").Annotations, proto.AnnotationTraceContext)
}
