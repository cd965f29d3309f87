package watch

import (
	"testing"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/stretchr/testify/require"
)

// FuzzRoutesFile: whatever is accepted is fit for the table.
func FuzzRoutesFile(f *testing.F) {
	f.Add([]byte(routesYAML))
	f.Add([]byte(only("s1")))
	f.Add([]byte("sandboxes: [{id: s1, endpoints: [{address: '::ffff:127.0.0.1'}]}]"))
	f.Add([]byte("sandboxes: [{id: s1, endpoints: [{address: 'fe80::1%lo'}]}]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		routes, err := parseRoutes(content)
		if err != nil {
			return
		}
		seen := map[key]bool{}
		for _, r := range routes {
			k := key{r.Namespace, r.Name}
			require.False(t, seen[k])
			seen[k] = true
			require.True(t, proto.ValidLabel(r.Name))
			require.True(t, proto.ValidLabel(r.Namespace))
			for _, a := range r.Endpoints {
				require.True(t, a.Addr.IsGlobalUnicast() || a.Addr.IsLoopback(), "%v", a.Addr)
				require.False(t, a.Addr.Is4In6())
				require.Empty(t, a.Addr.Zone())
			}
		}
	})
}

// FuzzAddress: an address that is believed can be a pod's.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"10.0.0.1", "fd00::1", "::ffff:169.254.169.254", "0x7f.1", "2130706433", "127.1", "fe80::1%1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, ok := believable(s, false)
		if !ok {
			return
		}
		require.True(t, a.IsGlobalUnicast())
		require.False(t, a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified())
		again, ok := believable(a.String(), false)
		require.True(t, ok)
		require.Equal(t, a, again)
	})
}
