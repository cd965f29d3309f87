package fleet

import (
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/dovakiin0/agent-sandbox/proto"
)

func TestSandboxesDiffer(t *testing.T) {
	ids, addrs, marks := map[string]bool{}, map[netip.Addr]bool{}, map[[MarkSize]byte]bool{}
	for i := range Max {
		id := ID(i)
		require.True(t, proto.ValidLabel(id), id)
		ids[id] = true
		for generation := range 2 {
			a := Addr(i, generation)
			require.True(t, a.IsLoopback())
			addrs[a], marks[Mark(a)] = true, true
		}
	}
	assert.Len(t, ids, Max)
	assert.Len(t, addrs, 2*Max)
	assert.Len(t, marks, 2*Max)
}

func TestRoutes(t *testing.T) {
	var got struct {
		Sandboxes []struct {
			ID, UID   string
			Endpoints []struct{ Address, UID string }
		}
	}
	require.NoError(t, yaml.UnmarshalStrict(Routes(3, func(i int) int { return i }), &got))
	require.Len(t, got.Sandboxes, 3)
	last := got.Sandboxes[2]
	assert.Equal(t, ID(2), last.ID)
	assert.Equal(t, Addr(2, 2).String(), last.Endpoints[0].Address)
	assert.NotEqual(t, got.Sandboxes[1].Endpoints[0].UID, last.Endpoints[0].UID)
}

func TestWriteFileReplaces(t *testing.T) {
	path := t.TempDir() + "/f"
	for _, content := range []string{"long content", "short"} {
		require.NoError(t, WriteFile(path, []byte(content)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, content, string(got))
	}
}
