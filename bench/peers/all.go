//go:build linux

package peers

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/dovakiin0/agent-sandbox/bench/proc"
)

// All are the contestants that need no flag. router is the router's binary.
func All(router string) ([]Contestant, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	all := []Contestant{Ours(router), HAProxy(), Nginx()}
	all = append(all, Builtin(self)...)
	for _, c := range append(Variants(router), HAProxyFields(), NginxFields()) {
		c.Extra = true
		all = append(all, c)
	}
	return all, nil
}

// Describe shows the command as a reader of a report may repeat it.
func (c *Contestant) Describe() string {
	words := c.Command
	if self, err := os.Executable(); err == nil && words[0] == self {
		words = append([]string{"bench"}, words[1:]...)
	}
	return strings.Join(words, " ")
}

// Backend is the process that plays all sandboxes.
type Backend struct {
	Port uint16
	Pid  int

	cmd *exec.Cmd
}

// StartBackend starts the backend on a core. The caller must call Stop.
func StartBackend(core int) (*Backend, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "backend")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := proc.OnCore(core, cmd.Start); err != nil {
		return nil, fmt.Errorf("starting the backend: %w", err)
	}
	b := &Backend{Pid: cmd.Process.Pid, cmd: cmd}
	if _, err := fmt.Fscan(bufio.NewReader(out), &b.Port); err != nil {
		b.Stop()
		return nil, fmt.Errorf("the backend did not say its port: %w", err)
	}
	return b, nil
}

// Stop ends the backend.
func (b *Backend) Stop() {
	b.cmd.Process.Kill()
	b.cmd.Wait()
}
