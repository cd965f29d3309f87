package reconcile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// TestPatchReturnsWhatTheServerHas, of which it answers the metadata where the rest is known.
func TestPatchReturnsWhatTheServerHas(t *testing.T) {
	status := func(sb *agents.Sandbox) { sb.Status.NodeName = "n" }
	image := func(sb *agents.Sandbox) {
		sb.Spec.PodTemplate.Spec.Containers[0].Image = "of-another-writer"
		sb.Generation++ // as the API server does
	}
	label := func(sb *agents.Sandbox) { sb.Labels = map[string]string{"other": "writer"} }
	for name, c := range map[string]struct {
		before func(f *fixture)
		lock   bool
		change func(*agents.Sandbox)
	}{
		"status":                           {nil, unlocked, status},
		"status, locked":                   {nil, locked, status},
		"status, metadata changed":         {func(f *fixture) { edit(f, f.sandbox("s"), label) }, unlocked, status},
		"status, spec changed":             {func(f *fixture) { edit(f, f.sandbox("s"), image) }, unlocked, status},
		"the rest, spec changed":           {func(f *fixture) { edit(f, f.sandbox("s"), image) }, unlocked, label},
		"metadata, locked":                 {nil, locked, label},
		"metadata of the template, locked": {nil, locked, func(sb *agents.Sandbox) { sb.Spec.PodTemplate.Metadata.Labels = map[string]string{"a": "b"} }},
		"status, made anew": {func(f *fixture) {
			require.NoError(f, f.client.Delete(f.Context(), f.sandbox("s")))
			other := newSandbox("s")
			other.UID = "another"
			other.Spec.PodTemplate.Spec.Containers[0].Image = "of-another-sandbox"
			require.NoError(f, f.client.Create(f.Context(), other))
		}, unlocked, status},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newSandbox("s"))
			have := f.sandbox("s")
			read := essence(have)
			if c.before != nil {
				c.before(f)
			}
			fresh, err := patch(t.Context(), f.r.client, have, c.lock, c.change)
			require.NoError(t, err)
			live := f.sandbox("s")
			assert.Equal(t, essence(live), essence(fresh))
			assert.Equal(t, live.ResourceVersion, fresh.ResourceVersion)
			assert.NotEqual(t, have.ResourceVersion, fresh.ResourceVersion)
			assert.Equal(t, read, essence(have), "what was read is shared")
		})
	}
}
