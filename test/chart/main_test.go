// Package chart tests the Helm chart as its users meet it: with the helm command, the binaries that its pods run, and a real
// Kubernetes API server.
//
// render_test.go renders every file of testdata/values and checks what must hold for all of them; sets_test.go says what is
// particular to each. install_test.go installs, upgrades and uninstalls for real: Deployments, ReplicaSets and pods are the
// control plane's own, and pods with our images run as processes with the rights of their service accounts.
package chart

import (
	"testing"

	"github.com/dovakiin0/agent-sandbox/test/env"
	"github.com/dovakiin0/agent-sandbox/test/stack"
)

func TestMain(m *testing.M) { env.Main(m, env.WithPods(stack.Controller, stack.Router)) }
