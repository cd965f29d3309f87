package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	exitcode "k8s.io/client-go/util/exec"
)

// session runs a command through client-go as kubectl does and returns its exit code.
func (s testServer) remote(t *testing.T, streams remotecommand.StreamOptions, command ...string) (code int, err error) {
	t.Helper()
	return s.remoteBy(t, subprotocolV5, streams, command...)
}

func (s testServer) remoteBy(t *testing.T, protocol string, streams remotecommand.StreamOptions, command ...string) (code int, err error) {
	t.Helper()
	query := url.Values{"command": command, "container": {"ignored"}}
	for name, wanted := range map[string]bool{
		"stdin": streams.Stdin != nil, "stdout": streams.Stdout != nil, "stderr": streams.Stderr != nil && !streams.Tty, "tty": streams.Tty,
	} {
		query.Set(name, strconv.FormatBool(wanted))
	}
	executor, err := remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{Host: s.url}, "GET", s.url+"/exec?"+query.Encode(), protocol)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = executor.StreamWithContext(ctx, streams)
	var exit exitcode.CodeExitError
	if errors.As(err, &exit) {
		return exit.Code, nil
	}
	return 0, err
}

func TestExecSeparatesStreamsAndReportsTheExitCode(t *testing.T) {
	s := startServer(t)
	for _, protocol := range []string{subprotocolV5, subprotocolV4} {
		var stdout, stderr bytes.Buffer
		code, err := s.remoteBy(t, protocol, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr},
			"sh", "-c", "echo out; echo err >&2; exit 7")
		require.NoError(t, err)
		assert.Equal(t, 7, code)
		assert.Equal(t, "out\n", stdout.String())
		assert.Equal(t, "err\n", stderr.String())
	}
}

func TestExecEnds(t *testing.T) {
	s := startServer(t)
	for _, test := range []struct {
		command []string
		code    int
	}{
		{[]string{"true"}, 0},
		{[]string{"false"}, 1},
		{[]string{"sh", "-c", "exit 255"}, 255},
		{[]string{"sh", "-c", "kill -9 $$"}, 137},
		{[]string{"sh", "-c", "kill -TERM $$"}, 143},
	} {
		code, err := s.remote(t, remotecommand.StreamOptions{Stdout: io.Discard}, test.command...)
		assert.NoError(t, err, "%v", test.command)
		assert.Equal(t, test.code, code, "%v", test.command)
	}
	_, err := s.remote(t, remotecommand.StreamOptions{Stdout: io.Discard}, "no-such-program")
	assert.ErrorContains(t, err, "no-such-program")
	_, err = s.remote(t, remotecommand.StreamOptions{Stdout: io.Discard, Tty: true}, "/no/such")
	assert.ErrorContains(t, err, "no such file")
}

func TestExecRunsInTheBaseDirectoryWithTheArgumentsAsGiven(t *testing.T) {
	s := startServer(t)
	writeFile(t, s.dir, "here", "")
	var stdout bytes.Buffer
	code, err := s.remote(t, remotecommand.StreamOptions{Stdout: &stdout}, "sh", "-c", `ls; printf '%s|' "$@"`, "x", "a b", "c+d&e", "", "é")
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Equal(t, "here\na b|c+d&e||é|", stdout.String())
}

func TestExecStdin(t *testing.T) {
	s := startServer(t)
	content := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB, many messages
	var stdout bytes.Buffer
	code, err := s.remote(t, remotecommand.StreamOptions{Stdin: strings.NewReader(content), Stdout: &stdout}, "cat")
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Equal(t, content, stdout.String(), "cat ends as stdin does")

	// A command that ends without reading ends the session all the same.
	code, err = s.remote(t, remotecommand.StreamOptions{Stdin: strings.NewReader(content), Stdout: io.Discard}, "sh", "-c", "exit 4")
	require.NoError(t, err)
	assert.Equal(t, 4, code)

	// Without stdin a command reads nothing.
	stdout.Reset()
	code, err = s.remote(t, remotecommand.StreamOptions{Stdout: &stdout}, "cat")
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Empty(t, stdout.String())
}

func TestExecStartsAShellByDefault(t *testing.T) {
	s := startServer(t)
	var stdout bytes.Buffer
	code, err := s.remote(t, remotecommand.StreamOptions{Stdin: strings.NewReader("echo $((6*7)); exit 5\n"), Stdout: &stdout})
	require.NoError(t, err)
	assert.Equal(t, 5, code)
	assert.Equal(t, "42\n", stdout.String())
}

// sizes is a queue of terminal sizes that its test fills.
type sizes chan remotecommand.TerminalSize

func (q sizes) Next() *remotecommand.TerminalSize {
	if size, ok := <-q; ok {
		return &size
	}
	return nil
}

func TestExecOnATerminal(t *testing.T) {
	t.Setenv("TERM", "")
	s := startServer(t)
	queue := make(sizes, 2)
	defer close(queue)
	queue <- remotecommand.TerminalSize{Width: 132, Height: 43}
	queue <- remotecommand.TerminalSize{Width: 200, Height: 50}
	var stdout bytes.Buffer
	code, err := s.remote(t, remotecommand.StreamOptions{Stdout: &stdout, Stderr: io.Discard, Tty: true, TerminalSizeQueue: queue},
		"sh", "-c", `stty size; until [ "$(stty size)" = "50 200" ]; do sleep 0.01; done; tty >&2; test -t 0 && test -t 1 && test -t 2; echo $? $TERM; exit 7`)
	require.NoError(t, err)
	assert.Equal(t, 7, code)
	assert.Regexp(t, `^\d+ \d+\r\n/dev/pts/\d+\r\n0 xterm\r\n$`, stdout.String(), "stderr is the terminal too")
}

func TestExecTerminalInput(t *testing.T) {
	s := startServer(t)
	var stdout bytes.Buffer
	code, err := s.remote(t, remotecommand.StreamOptions{Stdin: strings.NewReader("echo $((6*7))\nexit 7\n"), Stdout: &stdout, Tty: true}, "sh")
	require.NoError(t, err)
	assert.Equal(t, 7, code)
	assert.Contains(t, stdout.String(), "42\r\n", "typed input is echoed and run")

	// The end of stdin is what a user would type for it.
	stdout.Reset()
	code, err = s.remote(t, remotecommand.StreamOptions{Stdin: strings.NewReader("hello\n"), Stdout: &stdout, Tty: true}, "cat")
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Equal(t, 2, strings.Count(stdout.String(), "hello\r\n"), "%q", stdout.String())
}

// A terminal is gone with its shell, even when a command that was left behind holds it open and writes on.
func TestExecTerminalEndsWithItsShell(t *testing.T) {
	s := startServer(t)
	var stdout bytes.Buffer
	code, err := s.remote(t, remotecommand.StreamOptions{Stdout: &stdout, Tty: true},
		"sh", "-c", `(trap "" HUP; echo ready > ready; exec yes) & until [ -s ready ]; do sleep 0.01; done; exit 3`)
	require.NoError(t, err)
	assert.Equal(t, 3, code)
}

// Input that nobody reads holds neither the session nor its goroutines.
func TestExecTerminalEndsWithInputLeft(t *testing.T) {
	s := startServer(t)
	input := strings.NewReader(strings.Repeat("x", 1<<20))
	code, err := s.remote(t, remotecommand.StreamOptions{Stdin: input, Stdout: io.Discard, Tty: true}, "sh", "-c", "stty raw; exit 4")
	require.NoError(t, err)
	assert.Equal(t, 4, code)
	require.Eventually(t, func() bool { return s.runningCommands() == 0 }, patience, 5*time.Millisecond)
}

// What is read after the end is bounded, even when there is always more.
func TestTerminalBacklogIsBounded(t *testing.T) {
	terminal, tty, err := openTerminal()
	require.NoError(t, err)
	defer tty.Close()
	defer terminal.Close()
	terminal.stopWaiting()
	piece := make([]byte, 1000)
	for total := 0; total <= terminalBacklog; {
		_, err := tty.Write(piece)
		require.NoError(t, err)
		n, err := terminal.Read(piece)
		if err == io.EOF {
			assert.Equal(t, terminalBacklog, total)
			return
		}
		require.NoError(t, err)
		total += n
	}
	t.Fatal("no end")
}

func TestExecTerminalLosesNoLastWords(t *testing.T) {
	s := startServer(t)
	for range 20 {
		var stdout bytes.Buffer
		code, err := s.remote(t, remotecommand.StreamOptions{Stdout: &stdout, Tty: true}, "sh", "-c", "sleep 1000 & seq 1000; echo $!")
		require.NoError(t, err)
		assert.Zero(t, code)
		lines := strings.Fields(stdout.String())
		require.Len(t, lines, 1001)
		assert.Equal(t, "1000", lines[999])
		requireGone(t, lines[1000])
	}
}

func TestExecLargeOutput(t *testing.T) {
	s := startServer(t)
	const size = 32 << 20
	var stdout, stderr counter
	code, err := s.remote(t, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr},
		"sh", "-c", "head -c "+itoa(size)+" /dev/zero & head -c "+itoa(size)+" /dev/zero >&2; wait")
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.EqualValues(t, size, stdout)
	assert.EqualValues(t, size, stderr)
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func TestExecConcurrentSessions(t *testing.T) {
	s := startServer(t)
	var running sync.WaitGroup
	for i := range 20 {
		running.Go(func() {
			var stdout bytes.Buffer
			input := strings.Repeat(itoa(i)+"\n", 1000)
			code, err := s.remote(t, remotecommand.StreamOptions{Stdin: strings.NewReader(input), Stdout: &stdout}, "sh", "-c", "cat; exit "+itoa(i))
			assert.NoError(t, err)
			assert.Equal(t, i, code)
			assert.Equal(t, input, stdout.String())
		})
	}
	running.Wait()
}

// dial opens a session without client-go, which hides connections.
func (s testServer) dial(t *testing.T, query string) *websocket.Conn {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{subprotocolV5}}
	conn, _, err := dialer.Dial("ws://"+s.addr+"/exec?"+query, nil)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	assert.Equal(t, subprotocolV5, conn.Subprotocol())
	return conn
}

func TestExecEndsWithTheClient(t *testing.T) {
	s := startServer(t)
	const script = `trap "" TERM; sleep 1000 & echo $! > child; echo $$ > shell; wait`
	leave := map[string]func(*websocket.Conn) error{
		"disconnects": func(conn *websocket.Conn) error { return conn.NetConn().Close() },
		"closes": func(conn *websocket.Conn) error {
			return conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Time{})
		},
		"breaks the protocol": func(conn *websocket.Conn) error { return conn.WriteMessage(websocket.TextMessage, []byte("x")) },
	}
	for how, leaves := range leave {
		for _, tty := range []string{"false", "true"} {
			t.Run(how+"/tty="+tty, func(t *testing.T) {
				conn := s.dial(t, url.Values{"command": {"sh", "-c", script}, "stdin": {"1"}, "stdout": {"1"}, "tty": {tty}}.Encode())
				shell, child := waitForFile(t, s.dir, "shell"), waitForFile(t, s.dir, "child")
				require.NoError(t, leaves(conn))
				requireGone(t, shell)
				requireGone(t, child)
				require.NoError(t, os.Remove(s.dir+"/shell"))
			})
		}
	}
}

// A command that is gone from the group holds the output open; the session ends nevertheless.
func TestExecEndsWithTheClientWhateverHoldsTheOutput(t *testing.T) {
	s := startServer(t)
	conn := s.dial(t, url.Values{"command": {"setsid", "--fork", "sh", "-c", "echo $$ > pid; exec sleep 1000"}, "stdout": {"1"}}.Encode())
	pid := waitForFile(t, s.dir, "pid")
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return s.runningCommands() == 0 }, patience, 5*time.Millisecond)
	execute(t, s.url, "kill -9 "+pid)
}

func (s testServer) runningCommands() int {
	s.commands.mu.Lock()
	defer s.commands.mu.Unlock()
	return len(s.commands.running)
}

// Nothing is lost and nothing is heaped up when a client reads slowly: the command waits.
func TestExecWaitsForTheReader(t *testing.T) {
	s := startServer(t)
	const size = 64 << 20
	conn := s.dial(t, url.Values{"command": {"sh", "-c", "echo $$ > pid; exec head -c " + itoa(size) + " /dev/zero"}, "stdout": {"true"}}.Encode())
	pid := waitForFile(t, s.dir, "pid")
	written := 0 // bytes, by the command
	require.Eventually(t, func() bool {
		content, err := os.ReadFile("/proc/" + pid + "/io")
		require.NoError(t, err)
		_, after, _ := strings.Cut(string(content), "wchar: ")
		count, _, _ := strings.Cut(after, "\n")
		now, err := strconv.Atoi(count)
		require.NoError(t, err)
		stalled := now == written && now > sessionBuffer
		written = now
		return stalled
	}, patience, 100*time.Millisecond)
	assert.Less(t, written, size/2)

	total := 0
	for {
		_, message, err := conn.ReadMessage()
		require.NoError(t, err)
		if message[0] == channelError {
			assert.JSONEq(t, `{"status":"Success"}`, string(message[1:]))
			break
		}
		require.EqualValues(t, channelStdout, message[0])
		total += len(message) - 1
	}
	assert.Equal(t, size, total)
	_, _, err := conn.ReadMessage()
	assert.True(t, websocket.IsCloseError(err, websocket.CloseNormalClosure), "%v", err)
}

// A write that the client doesn't take ends with the session.
func TestExecEndsWithABlockedWrite(t *testing.T) {
	s := startServer(t)
	conn := s.dial(t, "command=yes&stdout=1")
	_, _, err := conn.ReadMessage()
	require.NoError(t, err)
	require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte("no such message")))
	require.Eventually(t, func() bool { return s.runningCommands() == 0 }, patience, 5*time.Millisecond)
}

// Messages as a careless client sends them.
func TestExecIgnoresMessagesWithoutMeaning(t *testing.T) {
	s := startServer(t)
	conn := s.dial(t, "command=cat&stdin=1&stdout=1")
	for _, message := range [][]byte{{}, {channelStdin}, {channelStdout, 'x'}, {channelResize, '{'}, {channelResize}, {channelClose}, {channelClose, 7}, {9}} {
		require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, message))
	}
	require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, []byte("\x00still here")))
	require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, []byte{channelClose, channelStdin}))
	require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, []byte("\x00too late")))
	var got []string
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			assert.True(t, websocket.IsCloseError(err, websocket.CloseNormalClosure), "%v", err)
			break
		}
		got = append(got, string(message))
	}
	assert.Equal(t, []string{"\x01still here", "\x03" + `{"status":"Success"}`}, got)
}

func TestExecAnswersPings(t *testing.T) {
	s := startServer(t)
	conn := s.dial(t, "command=cat&stdin=1&stdout=1")
	ponged := make(chan string, 1)
	conn.SetPongHandler(func(data string) error {
		ponged <- data
		return conn.WriteMessage(websocket.BinaryMessage, []byte{channelClose, channelStdin})
	})
	require.NoError(t, conn.WriteControl(websocket.PingMessage, []byte("here"), time.Time{}))
	for {
		if _, _, err := conn.ReadMessage(); err != nil {
			break
		}
	}
	assert.Equal(t, "here", <-ponged)
}

func TestExecRefusals(t *testing.T) {
	s := startServer(t)
	handshake := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="}
	const protocol = "Sec-WebSocket-Protocol: v5.channel.k8s.io"
	for _, test := range []struct {
		name   string
		target string
		header []string
		status int
	}{
		{"no upgrade", "/exec?stdout=1", []string{protocol}, 400},
		{"no subprotocol", "/exec?stdout=1", handshake, 400},
		{"other subprotocol", "/exec?stdout=1", append(handshake, "Sec-WebSocket-Protocol: channel.k8s.io, base64.channel.k8s.io"), 400},
		{"no stream", "/exec?command=true&stdout=false&stdin=0", append(handshake, protocol), 400},
		{"foreign origin", "/exec?stdout=1", append(handshake, protocol, "Origin: http://elsewhere.example"), 403},
	} {
		r := s.send(t, "GET", test.target, "", test.header...)
		assert.Equal(t, test.status, r.status, test.name)
		var got struct{ Detail string }
		require.NoError(t, jsonUnmarshal(r.body, &got), test.name)
		assert.NotEmpty(t, got.Detail, test.name)
	}
}

func TestShutdownEndsSessions(t *testing.T) {
	s := startServer(t)
	codes := make(chan int, 1)
	go func() {
		code, err := s.remote(t, remotecommand.StreamOptions{Stdout: io.Discard}, "sh", "-c", "echo $$ > pid; exec sleep 1000")
		assert.NoError(t, err)
		codes <- code
	}()
	pid := waitForFile(t, s.dir, "pid")
	s.stop()
	assert.Equal(t, 143, <-codes)
	requireGone(t, pid)
}
