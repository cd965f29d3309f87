package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// runAs makes the test binary run the program itself: as the server, or as process 1 would start it.
const (
	runAs       = "RUNTIME_TEST_RUN_AS"
	runAsServer = "server"
	runAsFirst  = "init"
)

// patience is how long tests wait for what must happen.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	switch os.Getenv(runAs) {
	case runAsServer:
		main()
		os.Exit(0)
	case runAsFirst:
		// A subreaper gets the orphans of its descendants, as process 1 does.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			panic(err)
		}
		os.Setenv(runAs, runAsServer)
		os.Exit(runAsInit())
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// Sleeps up to ten seconds before it sees that its server has stopped.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}

// program is the runtime as a process of its own.
type program struct {
	*exec.Cmd
	url string
}

func startProgram(t *testing.T, as string) program {
	t.Helper()
	cmd := exec.Command(os.Args[0], "--listen-address=127.0.0.1:0", "--base-dir="+t.TempDir())
	cmd.Env = append(os.Environ(), runAs+"="+as)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	line, err := bufio.NewReader(stderr).ReadBytes('\n')
	require.NoError(t, err)
	var listening struct{ Address string }
	require.NoError(t, json.Unmarshal(line, &listening), "%s", line)
	return program{cmd, "http://" + listening.Address}
}

func TestProgramServesAndEndsOnSIGTERM(t *testing.T) {
	for _, as := range []string{runAsServer, runAsFirst} {
		t.Run(as, func(t *testing.T) {
			p := startProgram(t, as)
			status, body := get(t, p.url+"/")
			assert.Equal(t, http.StatusOK, status)
			assert.JSONEq(t, `{"status":"ok","message":"Sandbox Runtime is active."}`, body)

			require.NoError(t, p.Process.Signal(syscall.SIGTERM))
			assert.NoError(t, p.Wait(), "exit code 0")
		})
	}
}

func TestInitReapsOrphans(t *testing.T) {
	p := startProgram(t, runAsFirst)
	res := execute(t, p.url, `sh -c "sleep 0.1 >/dev/null 2>&1 & echo $!"`)
	require.Equal(t, 0, res.ExitCode, res.Stderr)
	require.Eventually(t, func() bool {
		_, err := os.Stat("/proc/" + strings.TrimSpace(res.Stdout))
		return os.IsNotExist(err)
	}, patience, 10*time.Millisecond, "the orphan stays a zombie")

	res = execute(t, p.url, `sh -c "cut -d ' ' -f 4 /proc/$PPID/stat"`)
	assert.Equal(t, itoa(p.Process.Pid)+"\n", res.Stdout, "the server has lost its parent")
}

func TestInitReportsHowTheServerEnded(t *testing.T) {
	cmd := exec.Command(os.Args[0], "--exec-timeout=never")
	cmd.Env = append(os.Environ(), runAs+"="+runAsFirst)
	assert.Error(t, cmd.Run())
	assert.Equal(t, 2, cmd.ProcessState.ExitCode())
}

func TestBadSettingsEndWithOneLineThatNamesThem(t *testing.T) {
	file := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, test := range []struct {
		args []string
		code int
		word string
	}{
		{[]string{"--exec-timeout=never"}, 2, "-exec-timeout"},
		{[]string{"--exec-timeout=0"}, 2, "--exec-timeout"},
		{[]string{"--base-dir=/no/such"}, 2, "--base-dir"},
		{[]string{"--base-dir=" + file}, 2, "--base-dir"},
		{[]string{"--no-such-flag"}, 2, "no-such-flag"},
		{[]string{"--base-dir=/tmp", "extra"}, 2, `"extra"`},
		{[]string{"--base-dir=/tmp", "--listen-address=256.0.0.1:80"}, 1, "--listen-address"},
	} {
		var stderr bytes.Buffer
		cmd := exec.Command(os.Args[0], test.args...)
		cmd.Env = append(os.Environ(), runAs+"="+runAsServer)
		cmd.Stderr = &stderr
		assert.Error(t, cmd.Run())
		assert.Equal(t, test.code, cmd.ProcessState.ExitCode(), "%v", test.args)
		assert.Contains(t, stderr.String(), test.word)
		assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
	}
}

func TestSettingsFromTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"SANDBOX_BASE_DIR": dir}
	getenv := func(name string) string { return env[name] }
	for value, want := range map[string]time.Duration{
		"": 300 * time.Second, "7": 7 * time.Second, " 8 ": 8 * time.Second,
		"1.5": 300 * time.Second, "x": 300 * time.Second, "0": 300 * time.Second, "-1": 300 * time.Second,
		"9223372036854775807": 300 * time.Second,
	} {
		env["SANDBOX_EXEC_TIMEOUT_SECONDS"] = value
		cfg, err := parseConfig(nil, getenv)
		require.NoError(t, err)
		assert.Equal(t, config{listenAddress: ":8888", baseDir: dir, execTimeout: want}, cfg, "%q", value)
	}
	cfg, err := parseConfig([]string{"--exec-timeout=2m", "--base-dir=/"}, getenv)
	require.NoError(t, err)
	assert.Equal(t, config{listenAddress: ":8888", baseDir: "/", execTimeout: 2 * time.Minute}, cfg, "flags win")
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := client.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}
