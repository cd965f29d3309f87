package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/fasthttp/websocket"
)

const (
	// sessionBuffer is the largest piece of output in one message, in bytes, and the size of the connection's buffers.
	sessionBuffer = 32 << 10

	// closeWait is how long a session waits for the client to close, so that it reads everything before the socket goes.
	closeWait = 10 * time.Second
)

// session joins a WebSocket and a command. One goroutine receives, one per output sends. Nothing is queued between the
// two: a client that doesn't read stops the command's writes, and a command that doesn't read stops the client's. In
// the latter case a vanished client is noticed only when the command reads on or ends.
type session struct {
	conn    *websocket.Conn
	socket  net.Conn   // below conn
	writing sync.Mutex // data messages have one writer at a time

	process  *process
	terminal *terminal      // nil without one
	stdin    io.WriteCloser // nil if not asked for
	outputs  []output
}

type output struct {
	channel byte
	source  io.ReadCloser
}

func (s *server) serveSession(conn *websocket.Conn, socket net.Conn, options execOptions) {
	joined := &session{conn: conn, socket: socket}
	err := joined.start(s.commands, string(s.files), options)
	received := make(chan struct{})
	go func() {
		defer close(received)
		joined.receive()
		joined.abandon()
	}()
	if err != nil {
		joined.finish(notStarted(err))
	} else {
		defer s.commands.release(joined.process)
		joined.finish(exited(joined.run()))
	}
	<-received
}

// start starts the command with what options asks for in place of the null device.
func (s *session) start(commands *commands, dir string, options execOptions) (err error) {
	cmd := exec.Command(options.command[0], options.command[1:]...)
	cmd.Dir = dir
	if options.tty {
		return s.startOnTerminal(commands, cmd, options)
	}
	if options.stdin {
		if s.stdin, err = cmd.StdinPipe(); err != nil {
			return err
		}
	}
	if options.stdout {
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		s.outputs = append(s.outputs, output{channelStdout, stdout})
	}
	if options.stderr {
		stderr, err := cmd.StderrPipe()
		if err != nil {
			return err
		}
		s.outputs = append(s.outputs, output{channelStderr, stderr})
	}
	s.process, err = commands.start(cmd)
	return err
}

func (s *session) startOnTerminal(commands *commands, cmd *exec.Cmd, options execOptions) error {
	terminal, tty, err := openTerminal()
	if err != nil {
		return err
	}
	defer tty.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setctty: true, Ctty: 0}
	if os.Getenv("TERM") == "" {
		cmd.Env = append(os.Environ(), "TERM=xterm")
	}
	if s.process, err = commands.start(cmd); err != nil {
		terminal.Close()
		return err
	}
	s.terminal = terminal
	if options.stdin {
		s.stdin = terminalInput{terminal}
	}
	s.outputs = []output{{channelStdout, terminal}}
	return nil
}

// run returns when the command has ended. Without a terminal that includes whoever shares its output, as for
// POST /execute; a terminal is closed when its first command, the shell, ends.
func (s *session) run() syscall.WaitStatus {
	if s.terminal != nil {
		go func() {
			<-s.process.exited
			s.terminal.stopWaiting()
		}()
	}
	var sending sync.WaitGroup
	for _, o := range s.outputs {
		sending.Go(func() { s.send(o) })
	}
	sending.Wait()
	status := s.process.wait()
	if s.terminal != nil {
		s.terminal.Close() // hangs up on commands left behind, and ends the writing of input that nobody reads
	}
	return status
}

// send copies an output until its end or until the client is gone.
func (s *session) send(o output) {
	buffer := make([]byte, 1+sessionBuffer)
	buffer[0] = o.channel
	for {
		n, err := o.source.Read(buffer[1:])
		if n > 0 && s.write(buffer[:1+n]) != nil {
			s.abandon()
			return
		}
		if err != nil {
			return
		}
	}
}

func (s *session) write(message []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.conn.WriteMessage(websocket.BinaryMessage, message)
}

// receive serves the client's messages until the connection ends or breaks the protocol.
func (s *session) receive() {
	buffer := make([]byte, sessionBuffer)
	for {
		kind, message, err := s.conn.NextReader()
		if err != nil || kind != websocket.BinaryMessage {
			return
		}
		switch readByte(message) {
		case channelStdin:
			if s.stdin != nil {
				// An error means that the command reads no more, or comes up again at the next message.
				_, _ = io.CopyBuffer(onlyWriter{s.stdin}, message, buffer)
			}
		case channelResize:
			var size struct{ Width, Height uint16 }
			if json.NewDecoder(message).Decode(&size) == nil && s.terminal != nil {
				s.terminal.resize(size.Width, size.Height)
			}
		case channelClose:
			if readByte(message) == channelStdin && s.stdin != nil {
				s.stdin.Close()
			}
		}
	}
}

// onlyWriter hides the ReadFrom method of a file, which would allocate a buffer for every message.
type onlyWriter struct{ io.Writer }

// readByte returns the next byte of a message, -1 at its end.
func readByte(message io.Reader) int {
	var b [1]byte
	if _, err := io.ReadFull(message, b[:]); err != nil {
		return -1
	}
	return int(b[0])
}

// finish sends the last messages and leaves the client closeWait to close the connection.
func (s *session) finish(status exitStatus) {
	body, err := json.Marshal(status)
	if err != nil {
		panic(err) // it is made of strings
	}
	if s.write(append([]byte{channelError}, body...)) != nil {
		return
	}
	deadline := time.Now().Add(closeWait)
	_ = s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), deadline)
	_ = s.conn.SetReadDeadline(deadline)
}

// abandon ends the command and everything that waits, as the client is gone. It does nothing after the end.
func (s *session) abandon() {
	if s.process != nil {
		s.process.signal(syscall.SIGKILL)
	}
	for _, o := range s.outputs {
		o.source.Close() // a descendant in a session of its own may hold it open
	}
	s.socket.Close() // conn.Close does nothing: fasthttp closes the socket itself, when the session has returned
}
