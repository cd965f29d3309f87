// Package process runs child processes that cannot outlive their parent: each gets a process group of its own, and the
// kernel ends it when the parent dies, however that happens.
package process

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Command says what to run.
type Command struct {
	Path   string
	Args   []string // without the program's name
	Env    []string // "NAME=value"; nil inherits the parent's environment
	Dir    string
	Output io.Writer // receives stdout and stderr; nil discards them. An *os.File is handed over without copying.

	// DeathSignal goes to the process when the parent dies. The zero value means SIGKILL.
	DeathSignal syscall.Signal
}

// Process is a started child.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// starts carries calls to one goroutine that holds an OS thread for good. The kernel sends the death signal when the
// thread that started the child ends, and the threads of other goroutines may end at any time.
var starts = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go serveStarts(calls)
	return calls
})

func serveStarts(calls <-chan func()) {
	runtime.LockOSThread()
	for call := range calls {
		call()
	}
}

// Start starts the command.
func Start(c Command) (*Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Dir = c.Env, c.Dir
	cmd.Stdout, cmd.Stderr = c.Output, c.Output
	cmd.WaitDelay = time.Second // a grandchild that holds the output open must not hold up Done
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.DeathSignal != 0 {
		cmd.SysProcAttr.Pdeathsig = c.DeathSignal
	}
	started := make(chan error)
	starts() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()                              // ExitCode tells how it ended
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL) // what is left of the group
		close(p.done)
	}()
	return p, nil
}

// Done is closed once the process has ended and been reaped, and what was left of its group has been killed.
func (p *Process) Done() <-chan struct{} { return p.done }

// PID is the id of the process, which is the id of its group too.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// ExitCode tells how the process ended: its exit code, or 128 plus the number of the signal that ended it, as shells
// and kubelets count. It may be called once Done is closed.
func (p *Process) ExitCode() int {
	<-p.done
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// Signal sends a signal to the whole process group. It is not an error if nobody is left.
func (p *Process) Signal(signal syscall.Signal) error {
	select {
	case <-p.done: // the id may belong to somebody else by now
		return nil
	default:
	}
	err := syscall.Kill(-p.PID(), signal)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process group %d: %w", p.PID(), err)
	}
	return nil
}

// Stop asks the process group to end with SIGTERM, kills it after the grace period, and waits for the end.
func (p *Process) Stop(grace time.Duration) {
	_ = p.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		_ = p.Signal(syscall.SIGKILL)
		<-p.done
	}
}
