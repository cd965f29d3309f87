// Command node plays the scheduler and the kubelets of a small cluster on one machine, for tests and demos. It
// registers Nodes, binds pods to them, and runs them:
//
//   - A pod whose first container has the runtime image becomes one real process of the runtime binary with a directory
//     of its own, and is Ready once GET / on it answers 200.
//   - A pod whose first container has the image of a --program becomes a process of that program with the container's
//     arguments, environment and volumes and with the rights of its service account, and is Ready once its readiness
//     probe succeeds.
//   - A pod with the annotation test.agent-sandbox.dev/run: "true" runs the command of its first container as a real
//     process, as long as there is such a program on this machine.
//   - Any other pod is reported Running and Ready without a process.
//
// A pod here is its first container; what the others say is reported alike. Pods are restarted, end, and are deleted
// by the rules of a kubelet: restart policy, back-off, termination grace.
//
// The API server refuses loopback addresses for pods. So a pod reports an address out of 10.128.0.0/9, where no packet
// ever goes, and its process listens on the same host bits in 127.128.0.0/9: the pod 10.128.3.7 is 127.128.3.7:8888.
// All pods of one agent are in one /16 of it, held against other agents on the machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// settings are the values of the flags.
type settings struct {
	kubeconfig    string
	dataDir       string
	nodes         string
	runtimeBinary string
	runtimeImages string
	programs      []program
	reuseFirst    bool
}

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	var s settings
	// Not $KUBECONFIG: that may lead to a real cluster, where nobody wants these nodes.
	flag.StringVar(&s.kubeconfig, "kubeconfig", ".cluster/kubeconfig", "kubeconfig of an administrator of the test cluster")
	flag.StringVar(&s.dataDir, "data-dir", ".cluster/node", "directory for the files of the pods")
	flag.StringVar(&s.nodes, "nodes", "node-a=zone-a", "nodes to play, each with its zone: name=zone,...")
	flag.StringVar(&s.runtimeBinary, "runtime-binary", "", "program to run for pods of the runtime image")
	flag.StringVar(&s.runtimeImages, "runtime-image", "sandbox-runtime,python-runtime-sandbox", "how the repository of a runtime image ends, several by comma")
	flag.Func("program", "image to run as a program: how its repository ends, and the binary, as repository=binary; may be repeated", func(value string) error {
		p, err := parseProgram(value)
		s.programs = append(s.programs, p)
		return err
	})
	flag.BoolVar(&s.reuseFirst, "reuse-addresses-first", false, "give the address released last to the next pod, rather than one that was never used")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	nodes, err := parseNodes(s.nodes)
	if err != nil {
		return fmt.Errorf("--nodes: %w", err)
	}
	if s.runtimeBinary != "" {
		if s.runtimeBinary, err = existing(s.runtimeBinary); err != nil {
			return fmt.Errorf("--runtime-binary: %w", err)
		}
	}
	if s.dataDir, err = filepath.Abs(s.dataDir); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if err := os.MkdirAll(s.dataDir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	server, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	client, err := newClient(server)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	addresses, err := claimAddresses(filepath.Join(s.dataDir, "network"), s.reuseFirst)
	if err != nil {
		return err
	}
	defer addresses.Close()

	a := &agent{
		client:    client,
		nodes:     nodes,
		addresses: addresses,
		dataDir:   s.dataDir,
		runtime:   program{binary: s.runtimeBinary, repositories: strings.Split(s.runtimeImages, ",")},
		programs:  s.programs,
		server:    server,
		runs:      map[string]*podRun{},
		writes:    make(chan struct{}, parallelWrites),
	}
	return a.serve(ctx, func() {
		fmt.Printf("ready: %d nodes, pods in %s\n", len(nodes), addresses.network())
	})
}

// newClient makes a client that speaks the compact protocol and does not hold itself back.
func newClient(server *rest.Config) (kubernetes.Interface, error) {
	config := rest.AddUserAgent(rest.CopyConfig(server), "node-agent")
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}
