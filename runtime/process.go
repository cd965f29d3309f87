package main

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a running command: the leader of a session and of a process group of its own.
type process struct {
	cmd *exec.Cmd

	// exited is closed when the leader has ended. It stays a zombie until wait, so that its id, which is the group's
	// too, cannot pass to others while the group may still be signalled.
	exited chan struct{}

	mu     sync.Mutex
	reaped bool
}

// signal sends sig to the whole group. It does nothing after wait.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.cmd.Process.Pid, sig) // fails only when the group is gone
	}
}

// wait returns how the leader ended. It closes the pipes of cmd, which must have been read by then.
func (p *process) wait() syscall.WaitStatus {
	<-p.exited
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Wait() // its error repeats the state
	p.reaped = true
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

var errEnding = errors.New("the runtime is shutting down")

// commands are the running processes, kept so that shutdown can end them.
type commands struct {
	mu      sync.Mutex
	running map[*process]struct{}
	ending  bool
	ended   chan struct{} // closed once ending and nothing runs
}

func newCommands() *commands {
	return &commands{running: make(map[*process]struct{}), ended: make(chan struct{})}
}

// start starts cmd in a session of its own. The caller gives the process back with release when it is through with
// it, answer included.
func (c *commands) start(cmd *exec.Cmd) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending {
		return nil, errEnding
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	c.running[p] = struct{}{}
	go func() {
		for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		close(p.exited)
	}()
	return p, nil
}

// release forgets p.
func (c *commands) release(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, p)
	if c.ending && len(c.running) == 0 {
		close(c.ended)
	}
}

// end refuses new commands and ends the running ones: SIGTERM to each group, SIGKILL after grace. It returns when all
// are released or ctx is done.
func (c *commands) end(ctx context.Context, grace time.Duration) {
	c.mu.Lock()
	c.ending = true
	if len(c.running) == 0 {
		close(c.ended)
	}
	c.mu.Unlock()
	c.signalAll(syscall.SIGTERM)
	select {
	case <-c.ended:
		return
	case <-time.After(grace):
	}
	c.signalAll(syscall.SIGKILL)
	select {
	case <-c.ended:
	case <-ctx.Done():
	}
}

func (c *commands) signalAll(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.running {
		p.signal(sig)
	}
}
