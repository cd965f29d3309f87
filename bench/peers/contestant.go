//go:build linux

// Package peers starts the router and what it is compared with: each in a process of its own, on one core, with a
// configuration for the same sandboxes.
package peers

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dovakiin0/agent-sandbox/bench/fleet"
	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/proto/token"
)

// Contestant is a kind of proxy.
type Contestant struct {
	Name string
	// Command is the program and its arguments. {http}, {admin}, {probe} and {backend} stand for ports of 127.0.0.1,
	// {routes} for the routes file, {dir} for a folder of the process's own and {sandboxes} for their number.
	Command []string
	Env     []string
	// Prepare writes the files that the command needs.
	Prepare func(Site) error
	// Drain makes the process end after what is under way; 0: it cannot.
	Drain syscall.Signal
	// Follows says that it reads the routes file again when it changes.
	Follows bool
	// GoMetrics says that it serves the Go runtime's metrics on {admin}.
	GoMetrics bool
	// Fields are the header fields of the requests for a sandbox that not every contestant gets; each ends with \r\n. nil: that
	// of the pod's address, which client libraries send, and which routers that look nothing up need.
	Fields func(sandbox int) string
	// VersionArgs make the program say its version.
	VersionArgs []string
	// Own says that it is the router of this repository, or a variant.
	Own bool
	// Peer says that it was named by a flag.
	Peer bool
	// Extra contestants show what an option costs. Of all contestants, they take part only where a scenario asks for that.
	Extra bool
}

// Site is where a contestant works.
type Site struct {
	Dir                string
	HTTP, Admin, Probe uint16
	Backend            uint16
	Sandboxes          int
}

// Routes is the path of the routes file.
func (s Site) Routes() string { return s.Dir + "/routes.yaml" }

func (s Site) expand(arg string) string {
	return strings.NewReplacer(
		"{http}", port(s.HTTP), "{admin}", port(s.Admin), "{probe}", port(s.Probe), "{backend}", port(s.Backend),
		"{routes}", s.Routes(), "{dir}", s.Dir, "{sandboxes}", strconv.Itoa(s.Sandboxes),
	).Replace(arg)
}

func port(n uint16) string { return strconv.Itoa(int(n)) }

// Missing says why the contestant cannot take part; "": it can.
func (c *Contestant) Missing() string {
	if _, err := exec.LookPath(c.Command[0]); err != nil {
		return fmt.Sprintf("%s is not installed", c.Command[0])
	}
	return ""
}

// Version is what the program says of itself, or "".
func (c *Contestant) Version() string {
	if c.VersionArgs == nil {
		return ""
	}
	out, err := exec.Command(c.Command[0], c.VersionArgs...).CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// Ours is the router of this repository, with its defaults but for what a run needs.
func Ours(binary string) Contestant {
	return Contestant{
		Name: "ours", Own: true, Follows: true, GoMetrics: true, Drain: syscall.SIGTERM,
		Command: []string{
			binary, "--discovery=file", "--routes-file={routes}", "--allow-loopback-pod-ip",
			"--http-bind-address=127.0.0.1:{http}", "--metrics-bind-address=127.0.0.1:{admin}",
			"--health-probe-bind-address=127.0.0.1:{probe}", "--log-level=error", "--drain-delay=300ms",
			// Longer than a run: with 10,000 sandboxes a connection is idle for seconds between its requests.
			"--upstream-idle-timeout=60s",
		},
		VersionArgs: []string{"--version"},
	}
}

// Variant is a contestant with more arguments.
func (c Contestant) Variant(suffix string, args ...string) Contestant {
	c.Name += "-" + suffix
	c.Command = append(c.Command[:len(c.Command):len(c.Command)], args...)
	return c
}

// Variants of the router show what its options cost.
func Variants(binary string) []Contestant {
	access := Ours(binary).Variant("access-log", "--access-log=all")
	static := Ours(binary).Variant("static-token", "--authz-mode=static-token")
	static.Env = []string{"ROUTER_AUTH_TOKEN=bench-token"}
	static.Fields = func(sandbox int) string { return podIPField(sandbox) + tokenField("bench-token") }
	scoped := Ours(binary).Variant("scoped-token", "--authz-mode=scoped-token", "--authz-scoped-token-secret-file={dir}/secret")
	const secret = "a secret that only a benchmark may have"
	scoped.Prepare = func(s Site) error { return writeConfig(s, "secret", secret) }
	scoped.Fields = func(sandbox int) string { // such a token is no good for a pod's address
		key, err := token.NewKey([]byte(secret))
		if err != nil {
			panic(err) // the secret is too short, and is a constant
		}
		t, err := key.Mint(token.Scope{Namespace: proto.DefaultNamespace, Name: fleet.ID(sandbox), Expires: time.Now().Add(24 * time.Hour).Unix()})
		if err != nil {
			panic(err) // a Scope is always JSON
		}
		return tokenField(t)
	}
	limits := Ours(binary).Variant("limits", "--max-inflight-per-sandbox=64", "--max-connections-per-sandbox=64",
		"--max-request-body-bytes=16777216", "--client-min-body-rate=1024", "--websocket-max-connections-per-client=4096")
	return []Contestant{access, static, scoped, limits}
}

// RequestFields are the contestant's Fields.
func (c *Contestant) RequestFields(sandbox int) string {
	if c.Fields == nil {
		return podIPField(sandbox)
	}
	return c.Fields(sandbox)
}

func podIPField(sandbox int) string {
	return proto.HeaderPodIP + ": " + fleet.Addr(sandbox, 0).String() + "\r\n"
}

func tokenField(t string) string { return proto.HeaderToken + ": " + t + "\r\n" }

// Parse reads name=command, as the flag --peer has it. Words are separated by blanks.
func Parse(s string) (Contestant, error) {
	name, command, _ := strings.Cut(s, "=")
	words := strings.Fields(command)
	if name == "" || len(words) == 0 {
		return Contestant{}, fmt.Errorf("%q is not name=command", s)
	}
	return Contestant{Name: name, Command: words, Peer: true, Drain: syscall.SIGTERM, Follows: strings.Contains(command, "{routes}")}, nil
}

// writeRoutes writes the routes file that contestants may read.
func writeRoutes(s Site) error {
	return fleet.WriteFile(s.Routes(), fleet.Routes(s.Sandboxes, nil))
}

func writeConfig(s Site, name string, content string) error {
	return os.WriteFile(s.Dir+"/"+name, []byte(content), 0o644)
}
