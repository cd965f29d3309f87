// Command demo shows the whole system at work on this machine: it starts a Kubernetes control plane, a node, the
// controller and the router, claims a sandbox out of a warm pool, runs code in it over HTTP and over a WebSocket, and
// gives it back. Then it leaves everything up until Ctrl-C, or ends if the environment has DEMO_EXIT=1. The exit code
// is not zero if any step fails.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dovakiin0/agent-sandbox/test/stack"
)

func main() {
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "agent-sandbox-demo-")
	if err != nil {
		return err
	}
	d := &demo{out: out, dir: dir}
	defer d.stop()
	for _, s := range d.steps() {
		fmt.Fprintf(out, "\n==> %s\n", s.title)
		start := time.Now()
		if err := s.run(ctx); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted in %q", s.title)
			}
			d.keep = true
			return fmt.Errorf("%s: %w (logs are in %s)", s.title, err, dir)
		}
		fmt.Fprintf(out, "    done in %s\n", brief(time.Since(start)))
	}
	if os.Getenv("DEMO_EXIT") == "1" {
		fmt.Fprintln(out, "\nAll steps succeeded.")
		return nil
	}
	d.showCommands()
	<-ctx.Done()
	fmt.Fprintln(out, "\nStopping.")
	return nil
}

// step is one thing that the demo shows.
type step struct {
	title string
	run   func(context.Context) error
}

func (d *demo) steps() []step {
	return []step{
		{"Start a Kubernetes control plane and two nodes on this machine", d.startCluster},
		{"Start the controller and the router", d.startPrograms},
		{"Create a template and a warm pool of 3 sandboxes", d.createPool},
		{"Claim a sandbox and reach it through the router", d.claimSandbox},
		{"Run Python in it", d.runPython},
		{"Upload a file and download it again", d.copyFile},
		{"Open an interactive shell over a WebSocket", d.openShell},
		{"Give the sandbox back", d.deleteClaim},
		{"Claim another one to play with", d.claimAnother},
	}
}

// showCommands prints what to try next.
func (d *demo) showCommands() {
	fmt.Fprintf(d.out, `
All steps succeeded. Everything stays up until Ctrl-C; try these in another terminal:

  export KUBECONFIG=%[1]s
  kubectl get sandboxes,sandboxclaims,sandboxwarmpools,sandboxtemplates
  kubectl get pods,endpointslices -o wide
  kubectl scale sandboxwarmpool %[2]s --replicas=10

  curl -s -H 'X-Sandbox-Claim: %[3]s' %[4]s/execute -H 'Content-Type: application/json' -d '{"command": "sh -c \"uname -a; pwd\""}'
  curl -s -H 'X-Sandbox-ID: %[5]s' -F 'file=@README.md' %[4]s/upload
  curl -s -H 'X-Sandbox-ID: %[5]s' %[4]s/download/README.md
  curl -s http://%[6]s/metrics

  kubectl delete sandboxclaim %[3]s
`, d.stack.Kubeconfig, poolName, d.claim.Name, d.url(""), d.claim.Status.Sandbox.Name, d.router.Metrics)
}

// stop ends all processes and removes their files, unless a step failed.
func (d *demo) stop() {
	if d.stack != nil {
		d.stack.Stop()
	}
	if !d.keep {
		_ = os.RemoveAll(d.dir)
	}
}

func (d *demo) startCluster(ctx context.Context) (err error) {
	fmt.Fprintln(d.out, "    The first time this builds a Kubernetes API server from source, which takes minutes.")
	d.stack, err = stack.Start(ctx, stack.Options{Dir: d.dir, Progress: indented{d.out}})
	return err
}

func (d *demo) startPrograms(ctx context.Context) (err error) {
	if _, err = d.stack.StartController(ctx); err != nil {
		return err
	}
	d.router, err = d.stack.StartRouter(ctx)
	return err
}

// indented writes each line, which must come whole, below the title of its step.
type indented struct{ io.Writer }

func (w indented) Write(line []byte) (int, error) {
	_, err := fmt.Fprintf(w.Writer, "    %s", line)
	return len(line), err
}

// brief is a duration as people like to read it.
func brief(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
