//go:build linux

package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/fleet"
	"github.com/dovakiin0/agent-sandbox/bench/proc"
	"github.com/dovakiin0/agent-sandbox/proto"
)

// Process is a contestant at work. Its group holds what it started.
type Process struct {
	Site
	*Contestant
	Pids  []int
	Ready time.Duration // from its start to its first answer

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
}

// startTimeout is how long a contestant may take to answer.
const startTimeout = 30 * time.Second

// Start starts a contestant on a core and waits for its first answer. The caller must call Stop.
func Start(ctx context.Context, c *Contestant, sandboxes int, backend uint16, core int) (*Process, error) {
	dir, err := os.MkdirTemp("", "bench-"+c.Name+"-")
	if err != nil {
		return nil, err
	}
	p := &Process{Contestant: c, Site: Site{Dir: dir, Backend: backend, Sandboxes: sandboxes}, exited: make(chan struct{})}
	if err := p.start(ctx, core); err != nil {
		err = fmt.Errorf("%s: %w%s", c.Name, err, p.lastWords())
		p.Stop()
		return nil, err
	}
	return p, nil
}

func (p *Process) start(ctx context.Context, core int) error {
	for _, port := range []*uint16{&p.HTTP, &p.Admin, &p.Probe} {
		free, err := freePort()
		if err != nil {
			return err
		}
		*port = free
	}
	if err := writeRoutes(p.Site); err != nil {
		return err
	}
	if p.Prepare != nil {
		if err := p.Prepare(p.Site); err != nil {
			return err
		}
	}
	out, err := os.Create(p.Dir + "/output")
	if err != nil {
		return err
	}
	defer out.Close()
	args := make([]string, len(p.Command))
	for i, a := range p.Command {
		args[i] = p.expand(a)
	}
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env = append(os.Environ(), p.Env...)
	p.cmd.Stderr = out
	// A group of its own, so that what it starts ends with it; and it ends with us.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	begin := time.Now()
	if err := proc.OnCore(core, p.cmd.Start); err != nil {
		p.cmd = nil
		return err
	}
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	if err := p.awaitAnswer(ctx); err != nil {
		return err
	}
	p.Ready = time.Since(begin)
	p.Pids = proc.Group(p.cmd.Process.Pid)
	return nil
}

func (p *Process) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	// Each attempt has a connection of its own: early ones may meet a proxy that is not whole yet.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	var last error
	for {
		err := p.ask(ctx, client)
		switch {
		case err == nil:
			return nil
		case ctx.Err() == nil:
			last = err
		}
		select {
		case <-p.exited:
			return fmt.Errorf("it ended: %s", p.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w", errors.Join(last, ctx.Err()))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (p *Process) ask(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/fixed/64", p.Addr()), nil)
	if err != nil {
		return err
	}
	req.Header[proto.HeaderID] = []string{fleet.ID(0)} // Set would write it in another case than clients do
	req.Header.Set(proto.HeaderPort, port(p.Backend))
	for line := range strings.SplitSeq(strings.TrimSpace(p.RequestFields(0)), "\r\n") {
		name, value, _ := strings.Cut(line, ": ")
		req.Header[name] = []string{value}
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// Addr is where requests go.
func (p *Process) Addr() netip.AddrPort { return netip.AddrPortFrom(loopback, p.HTTP) }

// AdminURL is where the process serves its metrics.
func (p *Process) AdminURL() string { return fmt.Sprintf("http://127.0.0.1:%d", p.Admin) }

// DrainNow makes the process end after what is under way.
func (p *Process) DrainNow() error { return p.cmd.Process.Signal(p.Drain) }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Stop ends the process and what it started, at once, and removes its files.
func (p *Process) Stop() {
	if p.cmd != nil {
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.exited
	}
	os.RemoveAll(p.Dir)
}

// lastWords is the end of what the process said.
func (p *Process) lastWords() string {
	content, _ := os.ReadFile(p.Dir + "/output")
	const most = 2000
	if len(content) > most {
		content = content[len(content)-most:]
	}
	if len(content) == 0 {
		return ""
	}
	return "\n" + string(content)
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// freePort finds a port that nobody uses now.
func freePort() (uint16, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	a, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.New("no TCP address")
	}
	return uint16(a.Port), nil
}
