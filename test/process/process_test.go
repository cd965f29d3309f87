package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The test binary plays the parent in TestChildDiesWithItsParent.
func TestMain(m *testing.M) {
	if pidFile := os.Getenv("PROCESS_TEST_PID_FILE"); pidFile != "" {
		child, err := Start(Command{Path: "sleep", Args: []string{"600"}})
		if err == nil {
			err = os.WriteFile(pidFile, []byte(strconv.Itoa(child.PID())), 0o600)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {}
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/dovakiin0/agent-sandbox/test/process.serveStarts"))
}

func start(t *testing.T, c Command) *Process {
	t.Helper()
	p, err := Start(c)
	require.NoError(t, err)
	t.Cleanup(func() { p.Stop(0) })
	return p
}

func shell(t *testing.T, script string, output io.Writer) *Process {
	t.Helper()
	return start(t, Command{Path: "/bin/sh", Args: []string{"-c", script}, Output: output})
}

func TestExitCodes(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -TERM $$": 128 + 15, "kill -KILL $$": 128 + 9} {
		assert.Equal(t, want, shell(t, script, nil).ExitCode(), script)
	}
}

func TestStartReportsAMissingProgram(t *testing.T) {
	_, err := Start(Command{Path: "/no/such/program"})
	assert.True(t, errors.Is(err, os.ErrNotExist), "%v", err)
}

func TestOutputEnvironmentAndDirectory(t *testing.T) {
	var output bytes.Buffer
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	p := start(t, Command{Path: "/bin/sh", Args: []string{"-c", "pwd; echo $WORD >&2"}, Env: []string{"WORD=hello"}, Dir: dir, Output: &output})
	require.Equal(t, 0, p.ExitCode())
	assert.Equal(t, dir+"\nhello\n", output.String())
}

func TestStopLetsTheProcessEndItself(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	p := shell(t, "trap 'exit 3' TERM; echo ready >"+ready+"; while :; do sleep 0.01; done", nil)
	waitForFile(t, ready)
	p.Stop(time.Minute)
	assert.Equal(t, 3, p.ExitCode())
}

func TestStopKillsAfterTheGracePeriod(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	p := shell(t, "trap '' TERM; echo ready >"+ready+"; while :; do sleep 0.01; done", nil)
	waitForFile(t, ready)
	p.Stop(10 * time.Millisecond)
	assert.Equal(t, 128+9, p.ExitCode())
}

func TestTheGroupEndsWithTheProcess(t *testing.T) {
	var output bytes.Buffer
	p := shell(t, "sleep 600 >/dev/null 2>&1 & echo $!", &output)
	require.Equal(t, 0, p.ExitCode())
	requireGone(t, strings.TrimSpace(output.String()))
	assert.NoError(t, p.Signal(syscall.SIGTERM), "a group that is gone is no error")
}

func TestChildDiesWithItsParent(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pid")
	self, err := os.Executable()
	require.NoError(t, err)
	parent := start(t, Command{Path: self, Env: append(os.Environ(), "PROCESS_TEST_PID_FILE="+pidFile), Output: os.Stderr})
	child := waitForFile(t, pidFile)
	// Only the parent: the child is in a group of its own.
	require.NoError(t, syscall.Kill(parent.PID(), syscall.SIGKILL))
	requireGone(t, child)
}

// waitForFile returns what is in the file once there is something.
func waitForFile(t *testing.T, path string) string {
	t.Helper()
	var data []byte
	require.Eventually(t, func() bool {
		var err error
		data, err = os.ReadFile(path)
		return err == nil && len(data) > 0
	}, 10*time.Second, 5*time.Millisecond, "no file %s", path)
	return string(data)
}

// requireGone waits until no live process has the id. A zombie whose new parent is slow to reap counts as gone.
func requireGone(t *testing.T, pid string) {
	t.Helper()
	require.Regexp(t, `^\d+$`, pid)
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) ||
			bytes.Contains(stat, []byte(") Z ")) || bytes.Contains(stat, []byte(") X "))
	}, 10*time.Second, 5*time.Millisecond, "process %s still lives", pid)
}
