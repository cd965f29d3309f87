// Package env gives end-to-end tests a real Kubernetes API server, nodes that run pods, and our controller and router
// as the binaries they ship as. A package that uses it calls Main from its TestMain:
//
//	func TestMain(m *testing.M) { env.Main(m) }
//
// The first test that calls Get starts the control plane and the node agent; all tests of the package share them and
// work in namespaces of their own. In short mode such tests are skipped.
package env

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	agentsv1beta1 "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	extensionsv1beta1 "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/sources"
	"github.com/dovakiin0/agent-sandbox/test/stack"
)

// Env is a running control plane with nodes node-a in zone-a and node-b in zone-b, unless options say otherwise.
type Env struct {
	*stack.Stack
	// Client reads and writes the API server without a cache, as cluster administrator. It knows the built-in types and
	// ours.
	Client client.WithWatch
}

// Option changes what Main sets up.
type Option func(*stack.Options)

// WithNodes sets the nodes, each with its zone, as name=zone,...
func WithNodes(nodes string) Option { return func(o *stack.Options) { o.Nodes = nodes } }

// WithNodeArgs adds flags to the node agent.
func WithNodeArgs(args ...string) Option {
	return func(o *stack.Options) { o.NodeArgs = append(o.NodeArgs, args...) }
}

// WithPods runs pods that have the image of one of the programs as processes of it.
func WithPods(programs ...stack.Program) Option {
	return func(o *stack.Options) { o.Pods = append(o.Pods, programs...) }
}

var (
	options stack.Options
	shared  struct {
		once sync.Once
		env  *Env
		err  error
	}
)

// Main runs the tests of a package and takes down what they have started. It does not return.
func Main(m *testing.M, opts ...Option) {
	log.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "agent-sandbox-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Under the race detector the programs under test are built with it too.
	options = stack.Options{Dir: dir, Progress: os.Stderr, Race: raceEnabled}
	for _, opt := range opts {
		opt(&options)
	}
	code := m.Run()
	if shared.env != nil {
		if code != 0 {
			fmt.Fprintf(os.Stderr, "output of the node agent:\n%s\n", shared.env.Node.Output())
		}
		shared.env.Stop()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// Get returns the environment that all tests of the package share, and starts it for the first of them.
func Get(t testing.TB) *Env {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	if options.Dir == "" {
		t.Fatal("the package has no TestMain that calls env.Main")
	}
	shared.once.Do(func() { shared.env, shared.err = start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.env
}

func start() (*Env, error) {
	s, err := stack.Start(context.Background(), options)
	if err != nil {
		return nil, err
	}
	e := &Env{Stack: s}
	scheme, err := newScheme()
	if err == nil {
		e.Client, err = client.NewWithWatch(s.Config, client.Options{Scheme: scheme})
	}
	if err == nil {
		err = sources.Record(s.Root, "controller", "router", "runtime", "test", "charts")
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	return e, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, agentsv1beta1.AddToScheme, extensionsv1beta1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// Namespace makes a namespace for the test, ready to have pods, and deletes it after the test.
func (e *Env) Namespace(t testing.TB) string {
	t.Helper()
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name[:min(len(name), 40)] + "-"}}
	if err := e.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Client.Delete(context.Background(), ns); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}}
	e.WaitFor(t, account, "to exist", func() bool { return true })
	return ns.Name
}
