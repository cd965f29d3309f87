//go:build linux

package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Awake keeps cores from sleeping: a process on each uses the time that nobody else wants. When a virtual core sleeps, the machine
// under it wakes it, and takes milliseconds for that while it is busy. So without this the latencies at a low rate tell which proxy
// sleeps least.
type Awake struct{ cmds []*exec.Cmd }

// KeepAwake starts this program as "awake CORE" for each of the cores, which must call StayAwake. The caller must call Stop.
func KeepAwake(cores []int) (*Awake, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &Awake{}
	for _, core := range cores {
		cmd := exec.Command(self, "awake", strconv.Itoa(core))
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			a.cmds = append(a.cmds, cmd)
			_, err = bufio.NewReader(out).ReadString('\n')
		}
		if err != nil {
			a.Stop()
			return nil, fmt.Errorf("keeping core %d awake: %w", core, err)
		}
	}
	return a, nil
}

// Stop lets the cores sleep again.
func (a *Awake) Stop() {
	for _, cmd := range a.cmds {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// StayAwake occupies a core, writes a line, and does not return. The kernel lets every other task go first.
func StayAwake(core int, said io.Writer) error {
	idle := func(tid int) error { return unix.SchedSetAttr(tid, &unix.SchedAttr{Policy: unix.SCHED_IDLE}, 0) }
	if err := errors.Join(Stay(core), eachThread(idle)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(said, "awake"); err != nil {
		return err
	}
	//lint:ignore SA5002 to spin is what it is for
	for {
	}
}
