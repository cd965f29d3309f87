package reconcile

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/controller/priority"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// slowServer answers after a time.
type slowServer struct{ takes time.Duration }

// RoundTrip implements http.RoundTripper.
func (s *slowServer) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(s.takes)
	return httptest.NewRecorder().Result(), nil
}

// TestWhoIsUrgent: while a pass that somebody waits for is writing, a busy API server gets nothing from the background.
func TestWhoIsUrgent(t *testing.T) {
	member := newPoolMember("m", readyAt("10.128.0.9"))
	claimed := controlledByClaim(newClaim("c"))
	sandboxPass := func(t *testing.T, sandbox *agents.Sandbox) (*fixture, func() error) {
		f := newFixture(t, sandbox)
		return f, func() error { _, err := f.reconcile(sandbox.Name); return err }
	}
	for name, c := range map[string]struct {
		setup  func(*testing.T) (*fixture, func() error)
		urgent bool
	}{
		"a claim": {func(t *testing.T) (*fixture, func() error) {
			f := newClaimFixture(t, newTemplate(), newPool(), member.DeepCopy(), podOf(member), newClaim("c"))
			return f.fixture, func() error { _, err := f.reconcile("c"); return err }
		}, true},
		"its sandbox that starts": {func(t *testing.T) (*fixture, func() error) {
			return sandboxPass(t, newPoolMember("s", claimed, starting("10.128.0.9")))
		}, true},
		"its sandbox that it has": {func(t *testing.T) (*fixture, func() error) {
			return sandboxPass(t, newPoolMember("s", claimed, readyAt("10.128.0.9")))
		}, false},
		"a pool": {func(t *testing.T) (*fixture, func() error) {
			f := newPoolFixture(t, newTemplate(), newPool(replicas(1)))
			return f.fixture, func() error { _, err := f.reconcile(); return err }
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, pass := c.setup(t)
				server := &slowServer{}
				through := f.shared.gate.Wrap(server)
				send := func(ctx context.Context) error {
					_, err := through.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodPatch, "/", nil))
					return err
				}
				for _, server.takes = range []time.Duration{time.Millisecond, time.Second, time.Second} {
					require.NoError(t, send(t.Context()))
				}
				server.takes = time.Millisecond
				looked := false
				f.fail = func(string, client.Object) error {
					if looked {
						return nil
					}
					looked = true
					ctx, cancel := context.WithTimeout(priority.Background(t.Context()), time.Second)
					defer cancel()
					assert.Equal(t, c.urgent, send(ctx) != nil)
					return nil
				}
				require.NoError(t, pass())
				require.True(t, looked, "nothing was written")
				assert.NoError(t, send(priority.Background(t.Context())), "the pass is over")
			})
		})
	}
}
