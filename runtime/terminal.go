package main

import (
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Size of a terminal until the client tells its own, in characters.
	defaultColumns = 80
	defaultRows    = 24

	// terminalBacklog bounds what is read from a terminal after its shell has ended, in bytes. The kernel holds less;
	// more comes from commands that the shell left behind, and they may never stop.
	terminalBacklog = 128 << 10

	endOfTransmission = 0x04 // what a user types to end the input (POSIX, special character EOF)
)

// terminal is the master side of a pseudo-terminal. It is kept in non-blocking mode, so that Close and stopWaiting end
// a Read; packages that leave it in blocking mode cannot offer this.
type terminal struct {
	master  *os.File
	backlog int // bytes that may still be read after stopWaiting
}

// openTerminal returns a new terminal and its other side, which the command gets and the caller closes.
func openTerminal() (t *terminal, tty *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	t = &terminal{master: os.NewFile(uintptr(fd), "/dev/ptmx"), backlog: terminalBacklog}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, os.NewSyscallError("TIOCGPTN", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, os.NewSyscallError("TIOCSPTLCK", err)
	}
	tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	t.resize(defaultColumns, defaultRows)
	return t, tty, nil
}

// Read returns io.EOF when nothing has the other side open any more, or after stopWaiting when there is no more to read.
func (t *terminal) Read(p []byte) (int, error) {
	n, err := t.master.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		n, err = t.readNow(p)
	}
	if errors.Is(err, syscall.EIO) { // how Linux says that the other side is closed
		err = io.EOF
	}
	return n, err
}

// stopWaiting makes Read return what is there and then io.EOF.
func (t *terminal) stopWaiting() {
	_ = t.master.SetReadDeadline(time.Unix(1, 0)) // fails when closed
}

// readNow reads without waiting and past the deadline.
func (t *terminal) readNow(p []byte) (n int, err error) {
	p = p[:min(len(p), t.backlog)]
	if len(p) == 0 {
		return 0, io.EOF
	}
	controlErr := t.control(func(fd int) { n, err = unix.Read(fd, p) })
	if controlErr != nil || errors.Is(err, unix.EAGAIN) || n <= 0 && err == nil {
		return 0, io.EOF
	}
	n = max(n, 0) // -1 on an error
	t.backlog -= n
	return n, err
}

// Close hangs the terminal up.
func (t *terminal) Close() error {
	return t.master.Close()
}

// resize sets the size in characters and tells the foreground process group (SIGWINCH).
func (t *terminal) resize(columns, rows uint16) {
	_ = t.control(func(fd int) {
		_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	})
}

// control calls f with the file descriptor, which os.File.Fd would set to blocking mode.
func (t *terminal) control(f func(fd int)) error {
	raw, err := t.master.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}

// terminalInput is the input of a terminal. A terminal cannot be closed half, so Close types what ends the input.
type terminalInput struct{ terminal *terminal }

func (i terminalInput) Write(p []byte) (int, error) {
	return i.terminal.master.Write(p)
}

func (i terminalInput) Close() error {
	_, err := i.Write([]byte{endOfTransmission})
	return err
}
