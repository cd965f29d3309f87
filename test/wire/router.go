// Package wire tests the router from outside, byte by byte: a raw client on one side of the built binary, a raw TCP
// server in place of the sandbox on the other. Each case is one table row or one short function that reads top to
// bottom as a dialogue.
//
// The files that are no tests build and run the router, write its routes and make large bodies; the soak program uses them as
// well.
package wire

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dovakiin0/agent-sandbox/test/process"
)

// startPatience is how long a router may take to become ready.
const startPatience = 30 * time.Second

// Build compiles the router into dir, with the race detector if race is set, and returns the path of the binary.
func Build(dir string, race bool) (string, error) {
	binary := filepath.Join(dir, "router")
	args := []string{"build", "-o", binary}
	if race {
		args = append(args, "-race")
	}
	args = append(args, "github.com/dovakiin0/agent-sandbox/router")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the router: %w\n%s", err, out)
	}
	return binary, nil
}

// Router is a running router. Its listeners share one loopback address of their own, so that fixed ports never
// collide with another router on the machine.
type Router struct {
	*process.Process

	Proxy  string // host:port for traffic
	Secure string // host:port for traffic over TLS, open if the flags name a certificate
	Admin  string // host:port of /metrics
	Probes string // host:port of /healthz and /readyz

	output output
}

// lastAddress numbers loopback addresses. The random start keeps test processes apart.
var lastAddress atomic.Uint32

func init() { lastAddress.Store(rand.Uint32()) }

// freshAddress is an address in 127.90.0.0/16 that no other caller gets.
func freshAddress() string {
	n := lastAddress.Add(1)
	return fmt.Sprintf("127.90.%d.%d", n>>8&0xff, n&0xff)
}

// Launch starts the binary with flags, and with env in addition to this process's environment. It does not wait for
// the router to become ready.
func Launch(binary string, flags, env []string) (*Router, error) {
	host := freshAddress()
	r := &Router{Proxy: host + ":8080", Secure: host + ":8443", Admin: host + ":9090", Probes: host + ":8081"}
	args := []string{"--http-bind-address=" + r.Proxy, "--metrics-bind-address=" + r.Admin, "--health-probe-bind-address=" + r.Probes}
	if slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "--tls-cert-file=") }) {
		args = append(args, "--https-bind-address="+r.Secure)
	}
	p, err := process.Start(process.Command{
		Path:   binary,
		Args:   append(args, flags...),
		Env:    append(os.Environ(), env...),
		Output: &r.output,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot start the router: %w", err)
	}
	r.Process = p
	return r, nil
}

// Start launches the router and waits until it is ready.
func Start(binary string, flags, env []string) (*Router, error) {
	r, err := Launch(binary, flags, env)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(startPatience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		select {
		case <-r.Done():
			return nil, fmt.Errorf("the router ended at once with code %d\n%s", r.ExitCode(), r.Output())
		default:
		}
		if r.Probe("/readyz") == http.StatusOK {
			return r, nil
		}
	}
	r.Stop(0)
	return nil, fmt.Errorf("the router is not ready after %v\n%s", startPatience, r.Output())
}

// probes asks without keep-alive: a pooled connection would hold up a drain.
var probes = http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

// Probe returns the status of a path on the probe port, or 0 if there was no answer.
func (r *Router) Probe(path string) int {
	response, err := probes.Get("http://" + r.Probes + path)
	if err != nil {
		return 0
	}
	_ = response.Body.Close() // only the status counts
	return response.StatusCode
}

// PeakMemory is the largest resident set that the router has had, in bytes.
func (r *Router) PeakMemory() (int, error) { return r.status("VmHWM") }

// Memory is the router's resident set, in bytes.
func (r *Router) Memory() (int, error) { return r.status("VmRSS") }

// status reads a size from /proc/pid/status.
func (r *Router) status(name string) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kibibytes int
		if n, _ := fmt.Sscanf(line, name+": %d kB", &kibibytes); n == 1 {
			return kibibytes << 10, nil
		}
	}
	return 0, fmt.Errorf("no %s of process %d", name, r.PID())
}

// Output is what the router wrote to its standard streams so far.
func (r *Router) Output() string { return r.output.String() }

// Kill ends the router without ceremony, and reports a panic or a data race that it printed in its life.
func (r *Router) Kill() error {
	r.Stop(0)
	for _, sign := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		if strings.Contains(r.Output(), sign) {
			return errors.New("the router printed a crash report:\n" + r.Output())
		}
	}
	return nil
}

// output collects what a process prints while others read it.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
