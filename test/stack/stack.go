// Package stack builds and starts the whole system on one machine: a real Kubernetes control plane, a node agent that
// runs pods as processes, and our controller and router as the binaries they ship as. End-to-end tests use it through
// test/env; the demo and the claim benchmark use it directly.
package stack

import (
	"cmp"
	"context"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dovakiin0/agent-sandbox/test/process"
)

// Options say how to start a stack. The zero value is usable but for Dir.
type Options struct {
	Dir      string    // directory for the data and logs of all parts
	Progress io.Writer // for what takes long; nil for none
	Nodes    string    // as the flag --nodes of the node agent; the default is one node in each of two zones
	NodeArgs []string  // further flags of the node agent
	APIArgs  []string  // further flags of the API server
	CRDs     string    // directory of the CRDs; the default is that of the chart
	Race     bool      // build the controller and the router with the race detector
	Pods     []Program // to run as processes when a pod has their image, as the runtime always is
}

// Stack is a running control plane with a node agent. Stop it when it is no longer needed; all its processes end when
// the process that started it dies.
type Stack struct {
	Root       string // of the repository
	Kubeconfig string
	Config     *rest.Config // of a cluster administrator, without a rate limit

	ControlPlane, Node *Process

	options Options

	mu        sync.Mutex
	processes []*Process // in the order of their first start
}

// Start builds what is needed and starts the control plane with our CRDs and the node agent.
func Start(ctx context.Context, options Options) (*Stack, error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	if options.Nodes == "" {
		options.Nodes = "node-a=zone-a,node-b=zone-b"
	}
	root, err := Root()
	if err != nil {
		return nil, err
	}
	s := &Stack{Root: root, Kubeconfig: filepath.Join(options.Dir, "kubeconfig"), options: options}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(s.options.Dir, "logs"), 0o700); err != nil {
		return err
	}
	var err error
	s.ControlPlane, err = s.launch(ctx, ControlPlane, saysReady,
		append([]string{"--data-dir=" + filepath.Join(s.options.Dir, "cluster"), "--kubeconfig=" + s.Kubeconfig, "--"}, s.options.APIArgs...)...)
	if err != nil {
		return err
	}
	if s.Config, err = clientcmd.BuildConfigFromFlags("", s.Kubeconfig); err != nil {
		return err
	}
	s.Config.QPS = -1
	address, err := url.Parse(s.Config.Host)
	if err != nil {
		return err
	}
	s.ControlPlane.command.Args = append([]string{"--secure-port=" + address.Port()}, s.ControlPlane.command.Args...) // for Restart

	if err := installCRDs(ctx, s.Config, cmp.Or(s.options.CRDs, filepath.Join(s.Root, "charts/agent-sandbox/crds"))); err != nil {
		return err
	}
	runtime, err := s.build(ctx, Runtime)
	if err != nil {
		return err
	}
	args, err := s.podPrograms(ctx)
	if err != nil {
		return err
	}
	s.Node, err = s.launch(ctx, Node, saysReady, slices.Concat([]string{
		"--kubeconfig=" + s.Kubeconfig,
		"--data-dir=" + filepath.Join(s.options.Dir, "node"),
		"--nodes=" + s.options.Nodes,
		"--runtime-binary=" + runtime,
	}, args, s.options.NodeArgs)...)
	return err
}

// podPrograms builds what pods shall run and returns the flags that tell the node agent.
func (s *Stack) podPrograms(ctx context.Context) ([]string, error) {
	images := map[Program]string{Controller: "agent-sandbox-controller", Router: "sandbox-router"}
	var args []string
	for _, p := range s.options.Pods {
		path, err := s.build(ctx, p)
		if err != nil {
			return nil, err
		}
		args = append(args, "--program="+images[p]+"="+path)
	}
	return args, nil
}

// StartController builds and starts the controller with all its extensions and waits until it is ready. The arguments
// are added to the usual ones and win over them.
func (s *Stack) StartController(ctx context.Context, args ...string) (*Process, error) {
	host, err := loopbackHost(metricsPort, healthPort)
	if err != nil {
		return nil, err
	}
	return s.launch(ctx, Controller, answersReady, append([]string{
		"--kubeconfig=" + s.Kubeconfig,
		"--extensions",
		"--leader-elect=false",
		"--metrics-bind-address=" + host + ":" + metricsPort,
		"--health-probe-bind-address=" + host + ":" + healthPort,
	}, args...)...)
}

// StartRouter builds and starts the router and waits until it is ready. The arguments are added to the usual ones and
// win over them.
func (s *Stack) StartRouter(ctx context.Context, args ...string) (*Process, error) {
	host, err := loopbackHost(httpPort, metricsPort, healthPort)
	if err != nil {
		return nil, err
	}
	return s.launch(ctx, Router, answersReady, append([]string{
		"--kubeconfig=" + s.Kubeconfig,
		"--http-bind-address=" + host + ":" + httpPort,
		"--metrics-bind-address=" + host + ":" + metricsPort,
		"--health-probe-bind-address=" + host + ":" + healthPort,
		"--dial-translate=10.128.0.0/9=127.128.0.0/9", // where the node agent's pods really listen
	}, args...)...)
}

// StopGrace is how long a program may take to end before it is killed.
const StopGrace = 10 * time.Second

// Ports of our programs, as in production.
const (
	httpPort    = "8080"
	metricsPort = "9090"
	healthPort  = "8081"
)

func (s *Stack) build(ctx context.Context, p Program) (string, error) {
	race := s.options.Race && (p == Controller || p == Router)
	return Build(ctx, s.Root, p, race, s.options.Progress)
}

// launch builds and starts a program and returns it once it is ready.
func (s *Stack) launch(ctx context.Context, program Program, ready func(*Process) bool, args ...string) (*Process, error) {
	path, err := s.build(ctx, program)
	if err != nil {
		return nil, err
	}
	p := &Process{
		HTTP:    flagValue(args, "http-bind-address"),
		Metrics: flagValue(args, "metrics-bind-address"),
		Health:  flagValue(args, "health-probe-bind-address"),
		program: program,
		command: process.Command{Path: path, Args: args},
		ready:   ready,
	}
	if program == Node {
		p.command.DeathSignal = syscall.SIGTERM // it ends its pods in peace; the others have nothing to lose
	}
	log, err := os.CreateTemp(filepath.Join(s.options.Dir, "logs"), string(program)+"-*.log")
	if err != nil {
		return nil, err
	}
	p.log = log.Name()
	log.Close()
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes = append(s.processes, p)
	return p, nil
}

// Stop ends everything that was started, the newest first.
func (s *Stack) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range slices.Backward(s.processes) {
		if p == s.ControlPlane {
			p.Kill() // nobody will ask for its data
			continue
		}
		p.Stop(StopGrace)
	}
	s.processes = nil
}
