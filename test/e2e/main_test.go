// Package e2e tests the controller, the router and the runtime together, as the binaries they ship as, on a real
// Kubernetes API server.
package e2e

import (
	"testing"

	"github.com/dovakiin0/agent-sandbox/test/env"
)

func TestMain(m *testing.M) { env.Main(m) }
