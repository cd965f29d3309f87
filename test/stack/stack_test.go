package stack

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dovakiin0/agent-sandbox/test/process"
)

func TestRootIsFoundFromBelow(t *testing.T) {
	root, err := Root()
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(root, "test", "stack", "stack_test.go"))

	t.Chdir(filepath.Join(root, "test", "cluster")) // the nested module is not the root
	again, err := Root()
	require.NoError(t, err)
	assert.Equal(t, root, again)

	t.Chdir(t.TempDir())
	_, err = Root()
	assert.ErrorContains(t, err, "not inside the repository")
}

func TestFlagValue(t *testing.T) {
	args := []string{"--a=1", "--b", "-a=2", "--ab=3"}
	assert.Equal(t, "2", flagValue(args, "a"), "the last one counts")
	assert.Equal(t, "3", flagValue(args, "ab"))
	assert.Empty(t, flagValue(args, "b"))
}

func TestBuildReportsWhatTheCompilerSays(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "router"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module broken\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "router", "main.go"), []byte("package main\n\nfunc main() { nonsense }\n"), 0o600))
	_, err := Build(t.Context(), root, Router, false, &strings.Builder{})
	assert.ErrorContains(t, err, "build router")
	assert.ErrorContains(t, err, "undefined: nonsense")
}

func TestNewerThanAll(t *testing.T) {
	dir := t.TempDir()
	file, source := filepath.Join(t.TempDir(), "binary"), filepath.Join(dir, "main.go")
	assert.False(t, newerThanAll(file, dir), "not built yet")
	for _, name := range []string{file, source} {
		require.NoError(t, os.WriteFile(name, nil, 0o600))
	}
	now := time.Now()
	require.NoError(t, os.Chtimes(file, now, now))
	require.NoError(t, os.Chtimes(source, now, now.Add(-time.Second)))
	assert.True(t, newerThanAll(file, dir))
	require.NoError(t, os.Chtimes(source, now, now.Add(time.Second)))
	assert.False(t, newerThanAll(file, dir))
}

func shellProcess(t *testing.T, script string) *Process {
	t.Helper()
	p := &Process{
		program: "script",
		command: process.Command{Path: "/bin/sh", Args: []string{"-c", script}},
		ready:   saysReady,
		log:     filepath.Join(t.TempDir(), "log"),
	}
	t.Cleanup(func() {
		if p.Process != nil {
			p.Kill()
		}
	})
	return p
}

func TestProcessThatEndsEarly(t *testing.T) {
	err := shellProcess(t, "echo bad flag; exit 2").start(t.Context())
	assert.ErrorContains(t, err, "ended with exit code 2")
	assert.ErrorContains(t, err, "bad flag")
}

func TestProcessThatIsNeverReady(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	p := shellProcess(t, "sleep 600")
	require.ErrorIs(t, p.start(ctx), context.DeadlineExceeded)
	<-p.Done() // it is not left behind
}

func TestRestartWaitsForTheNewProcess(t *testing.T) {
	p := shellProcess(t, "test -e $0.again && sleep 0.1; touch $0.again; echo ready; exec sleep 600")
	p.command.Args = append(p.command.Args, filepath.Join(t.TempDir(), "state"))
	require.NoError(t, p.start(t.Context()))
	p.Kill()
	require.NoError(t, p.Restart(t.Context()))
	assert.Equal(t, 2, strings.Count(p.Output(), "ready\n"), "the first ready line does not count again")
}
