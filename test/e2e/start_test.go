package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/test/process"
	"github.com/dovakiin0/agent-sandbox/test/stack"
)

// kubeconfigToNowhere names an API server where nobody listens.
const kubeconfigToNowhere = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
`

// TestStartErrors starts the programs with settings that cannot work: they end with one line that names the setting.
func TestStartErrors(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(nowhere, []byte(kubeconfigToNowhere), 0o600))
	for _, c := range []struct {
		program stack.Program
		args    []string
		names   string // a part of the line
	}{
		{stack.Router, []string{"--no-such-flag"}, "no-such-flag"},
		{stack.Router, []string{"--proxy-timeout=soon"}, "proxy-timeout"},
		{stack.Router, []string{"--discovery=dns"}, "--discovery"},
		{stack.Router, []string{"--discovery=file"}, "--routes-file"},
		{stack.Router, []string{"--discovery=file", "--routes-file=/no/such/file"}, "--routes-file"},
		{stack.Router, []string{"--kubeconfig=/no/such/file"}, "--kubeconfig"},
		{stack.Router, []string{"--kubeconfig=" + nowhere}, "--kubeconfig"},
		{stack.Controller, []string{"--no-such-flag"}, "no-such-flag"},
		{stack.Controller, []string{"--sandbox-concurrent-workers=0"}, "sandbox-concurrent-workers"},
		{stack.Controller, []string{"--kubeconfig=/no/such/file"}, "kubeconfig"},
		{stack.Controller, []string{"--kubeconfig=" + nowhere}, "kubeconfig"},
	} {
		t.Run(string(c.program)+" "+strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			root, err := stack.Root()
			require.NoError(t, err)
			path, err := stack.Build(t.Context(), root, c.program, false, os.Stderr)
			require.NoError(t, err)
			var output bytes.Buffer
			p, err := process.Start(process.Command{Path: path, Args: c.args, Env: []string{"HOME=" + t.TempDir()}, Output: &output})
			require.NoError(t, err)
			select {
			case <-p.Done():
			case <-time.After(patience):
				p.Stop(0)
				t.Fatalf("it goes on: %s", output.String())
			}
			assert.NotZero(t, p.ExitCode())
			lines := strings.Split(strings.TrimSpace(output.String()), "\n")
			assert.Len(t, lines, 1, output.String())
			assert.Contains(t, lines[0], c.names)
		})
	}
}
