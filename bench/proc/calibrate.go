//go:build linux

package proc

import (
	"errors"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rounds of Calibrate: some 20 ms on a quiet machine.
const rounds = 2000

// Calibrate times a fixed piece of work like a proxy's: bytes to and fro over a loopback connection, by one thread on one
// core. It returns the time of one round trip. The same work takes longer when something else uses the machine, so readings
// around a run tell how much its figures can be trusted.
func Calibrate(core int) (d time.Duration, err error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	a, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer a.Close()
	b, err := l.Accept()
	if err != nil {
		return 0, err
	}
	defer b.Close()
	err = OnCore(core, func() error {
		return withDescriptors(a, b, func(a, b uintptr) error {
			begin := time.Now()
			for range rounds {
				if err := errors.Join(pass(a, b), pass(b, a)); err != nil {
					return err
				}
			}
			d = time.Since(begin) / rounds
			return nil
		})
	})
	return d, err
}

func withDescriptors(a, b net.Conn, f func(a, b uintptr) error) error {
	ra, err := a.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	rb, err := b.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	var inner, failed error
	err = ra.Control(func(fa uintptr) {
		inner = rb.Control(func(fb uintptr) { failed = f(fa, fb) })
	})
	return errors.Join(err, inner, failed)
}

var calibration [256]byte

// pass sends a request's worth of bytes from one end to the other. Loopback delivers them before the send returns.
func pass(from, to uintptr) error {
	b := uintptr(unsafe.Pointer(&calibration))
	if _, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, from, b, uintptr(len(calibration)), unix.MSG_NOSIGNAL, 0, 0); errno != 0 {
		return errno
	}
	for left := len(calibration); left > 0; {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, to, b, uintptr(left))
		if errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
			return errno
		}
		if errno == 0 {
			left -= int(n)
		}
	}
	return nil
}
