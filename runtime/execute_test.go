package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// execute runs a command over HTTP and requires status 200.
func execute(t *testing.T, url, command string) result {
	t.Helper()
	body, err := json.Marshal(map[string]string{"command": command})
	require.NoError(t, err)
	response, err := client.Post(url+"/execute", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", content)
	var res result
	require.NoError(t, json.Unmarshal(content, &res))
	return res
}

func TestExecute(t *testing.T) {
	t.Setenv("RUNTIME_TEST_VALUE", "inherited")
	s := startServer(t)
	base, err := filepath.EvalSymlinks(s.dir)
	require.NoError(t, err)
	writeFile(t, s.dir, "script", "#!/bin/sh\necho from script")
	require.NoError(t, os.Chmod(s.dir+"/script", 0o755))
	for command, want := range map[string]result{
		`echo 'hello world'`:                     {Stdout: "hello world\n"},
		`sh -c "echo out; echo err >&2; exit 3"`: {Stdout: "out\n", Stderr: "err\n", ExitCode: 3},
		`echo $HOME * | cat`:                     {Stdout: "$HOME * | cat\n"},
		`pwd -P`:                                 {Stdout: base + "\n"},
		`printenv RUNTIME_TEST_VALUE`:            {Stdout: "inherited\n"},
		`./script`:                               {Stdout: "from script\n"},
		`cat`:                                    {},
		`sh -c 'kill -9 $$'`:                     {ExitCode: -9},
		`sh -c 'kill -TERM $$'`:                  {ExitCode: -15},
		`printf 'a\r\nb\rc\n'`:                   {Stdout: "a\nb\nc\n"},
		`printf '\303\251\377<&>'`:               {Stdout: "é\ufffd<&>"},
		`sh -c 'test $(cut -d\  -f6 /proc/$$/stat) = $$ && echo session'`: {Stdout: "session\n"},
	} {
		assert.Equal(t, want, execute(t, s.url, command), command)
	}
}

func TestExecuteFailureForm(t *testing.T) {
	s := startServer(t, func(c *config) { c.execTimeout = 50 * time.Millisecond })
	for command, word := range map[string]string{
		"no-such-program":     "no-such-program",
		"./no-such-file":      "no such file",
		"/":                   "is a directory",
		"":                    "empty",
		"echo 'open":          "quotation",
		"sleep 1000":          "timed out",
		`sh -c "sleep 1000&"`: "timed out",
		"echo a\x00b":         "invalid argument",
	} {
		res := execute(t, s.url, command)
		assert.True(t, strings.HasPrefix(res.Stderr, "Failed to execute command: "), "%q: %+v", command, res)
		assert.Contains(t, res.Stderr, word, command)
		assert.Equal(t, result{Stderr: res.Stderr, ExitCode: 1}, res, command)
	}
}

func TestExecuteTimeoutKillsTheGroup(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(c *config) { c.execTimeout = 2 * time.Second })
	res := execute(t, s.url, `sh -c "sleep 1000 & echo $! > child; trap '' TERM; wait"`)
	require.Contains(t, res.Stderr, "timed out")
	requireGone(t, readFile(t, s.dir, "child"))
}

// The pipes are held open by a process that has left the group.
func TestExecuteTimeoutDoesNotWaitForOtherSessions(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(c *config) { c.execTimeout = 2 * time.Second })
	res := execute(t, s.url, `setsid sh -c 'echo $$ > pid; exec sleep 1000'`)
	assert.Contains(t, res.Stderr, "timed out")
	pid, err := strconv.Atoi(readFile(t, s.dir, "pid"))
	require.NoError(t, err)
	assert.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}

func TestExecuteLeavesBackgroundCommandsRunning(t *testing.T) {
	s := startServer(t)
	res := execute(t, s.url, `sh -c "sleep 1000 >/dev/null 2>&1 & echo $!"`)
	pid, err := strconv.Atoi(strings.TrimSpace(res.Stdout))
	require.NoError(t, err)
	assert.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}

func TestExecuteValidation(t *testing.T) {
	s := startServer(t)
	type field struct {
		Type  string
		Loc   []any
		Msg   string
		Input any
	}
	const json, text = "Content-Type: application/json", "Content-Type: text/plain"
	for _, test := range []struct {
		body, header string
		want         field
	}{
		{"", json, field{"missing", []any{"body"}, "Field required", nil}},
		{"null", json, field{"missing", []any{"body"}, "Field required", nil}},
		{"{}", json, field{"missing", []any{"body", "command"}, "Field required", map[string]any{}}},
		{`{"Command":"x"}`, json, field{"missing", []any{"body", "command"}, "Field required", map[string]any{"Command": "x"}}},
		{`{"command":5}`, json, field{"string_type", []any{"body", "command"}, "Input should be a valid string", 5.0}},
		{`{"command":null}`, json, field{"string_type", []any{"body", "command"}, "Input should be a valid string", nil}},
		{`{"command":["x"]}`, json, field{"string_type", []any{"body", "command"}, "Input should be a valid string", []any{"x"}}},
		{`[1]`, json, field{"model_attributes_type", []any{"body"}, "Input should be a valid dictionary or object to extract fields from", []any{1.0}}},
		{`"x"`, json, field{"model_attributes_type", []any{"body"}, "Input should be a valid dictionary or object to extract fields from", "x"}},
		{`{"command":"id"}`, text, field{"model_attributes_type", []any{"body"}, "Input should be a valid dictionary or object to extract fields from", `{"command":"id"}`}},
		{`{"command"`, json, field{"json_invalid", []any{"body", 10.0}, "JSON decode error", map[string]any{}}},
	} {
		r := s.send(t, "POST", "/execute", test.body, test.header)
		require.Equal(t, 422, r.status, test.body)
		var got struct{ Detail []field }
		require.NoError(t, jsonUnmarshal(r.body, &got))
		assert.Equal(t, []field{test.want}, got.Detail, test.body)
	}
	for _, header := range []string{"Accept: */*", "Content-Type: application/json; charset=utf-8", "Content-Type: application/vnd.api+json"} {
		r := s.send(t, "POST", "/execute", `{"command":"echo hi","other":1}`, header)
		assert.Equal(t, 200, r.status, header)
		assert.JSONEq(t, `{"stdout":"hi\n","stderr":"","exit_code":0}`, r.body)
	}
}

func TestExecuteConcurrentlyWithLargeOutput(t *testing.T) {
	s := startServer(t)
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			size := 1<<20 + i
			res := execute(t, s.url, `sh -c "head -c `+itoa(size)+` /dev/zero | tr '\0' x; head -c `+itoa(size)+` /dev/zero | tr '\0' y >&2"`)
			assert.Equal(t, result{Stdout: strings.Repeat("x", size), Stderr: strings.Repeat("y", size)}, res)
		})
	}
	running.Wait()
}

func TestShutdownEndsCommandsAndAnswersThem(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	results := make(chan result, 2)
	for _, command := range []string{
		`sh -c 'echo $$ > polite; exec sleep 1000'`,
		`sh -c 'trap "" TERM; echo $$ > stubborn; while :; do sleep 1000; done'`,
	} {
		go func() { results <- execute(t, s.url, command) }()
	}
	pids := []string{waitForFile(t, s.dir, "polite"), waitForFile(t, s.dir, "stubborn")}
	s.stop()
	codes := []int{(<-results).ExitCode, (<-results).ExitCode}
	assert.ElementsMatch(t, []int{-int(syscall.SIGTERM), -int(syscall.SIGKILL)}, codes)
	for _, pid := range pids {
		requireGone(t, pid)
	}
}

func jsonUnmarshal(body string, v any) error { return json.Unmarshal([]byte(body), v) }

// requireGone waits until a process has ended; a zombie has.
func requireGone(t *testing.T, pid string) {
	t.Helper()
	require.NotEmpty(t, pid)
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			return true
		}
		_, afterName, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(afterName, "Z")
	}, patience, 5*time.Millisecond, "process %s is still there", pid)
}

func writeFile(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
}

func readFile(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return strings.TrimSuffix(string(content), "\n")
}

// waitForFile returns the first line of a file as soon as it is complete.
func waitForFile(t *testing.T, dir, name string) (line string) {
	t.Helper()
	require.Eventually(t, func() bool {
		content, _ := os.ReadFile(filepath.Join(dir, name))
		var complete bool
		line, _, complete = strings.Cut(string(content), "\n")
		return complete
	}, patience, 5*time.Millisecond, "%s doesn't come", name)
	return line
}
