package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	executil "k8s.io/client-go/util/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/env"
	"github.com/dovakiin0/agent-sandbox/test/stack"
)

const (
	patience = time.Minute // for what happens soon
	pause    = 50 * time.Millisecond
)

// unknownWait has the router wait longer for news of a sandbox that it does not know: a busy machine may have this test see
// a claim turn Ready well before the router sees the route.
const unknownWait = "--unknown-wait=10s"

// whole is the system as an orchestrator meets it: a pool of real runtimes, claims on it, and the router.
type whole struct {
	*sandboxes
	router *stack.Process
	pool   *extensions.SandboxWarmPool
}

func newWhole(t *testing.T, replicas int32) *whole {
	w := &whole{sandboxes: on(t, env.Get(t))}
	name := metav1.ObjectMeta{Namespace: w.ns, Name: "python"}
	template := &extensions.SandboxTemplate{ObjectMeta: name}
	template.Spec.EnvVarsInjectionPolicy = extensions.EnvVarsAllowed
	template.Spec.PodTemplate.Spec.Containers = []corev1.Container{{
		Name: "runtime", Image: "sandbox-runtime:test", Ports: []corev1.ContainerPort{{ContainerPort: proto.DefaultPort}},
	}}
	w.create(template)
	w.pool = &extensions.SandboxWarmPool{ObjectMeta: name}
	w.pool.Spec.Replicas, w.pool.Spec.TemplateRef.Name = &replicas, "python"
	w.create(w.pool)
	return w
}

func (w *whole) waitPool() {
	w.Helper()
	w.WaitFor(w, w.pool, "to be full", func() bool { return w.pool.Status.ReadyReplicas == *w.pool.Spec.Replicas })
}

// claim makes a claim and waits until it is Ready.
func (w *whole) claim(name string, vars ...extensions.EnvVar) *extensions.SandboxClaim {
	w.Helper()
	c := &extensions.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	c.Spec.WarmPoolRef.Name, c.Spec.Env = "python", vars
	w.create(c)
	w.waitClaim(c)
	return c
}

func (w *whole) waitClaim(c *extensions.SandboxClaim) {
	w.Helper()
	w.WaitFor(w, c, "to be Ready", func() bool { return meta.IsStatusConditionTrue(c.Status.Conditions, "Ready") })
}

// sandboxOf reads the Sandbox of a claim.
func (w *whole) sandboxOf(c *extensions.SandboxClaim) *agents.Sandbox {
	w.Helper()
	sb := &agents.Sandbox{}
	require.NoError(w, w.Client.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: c.Status.Sandbox.Name}, sb))
	return sb
}

// execute runs a command in a sandbox and returns what it printed.
func (w *whole) execute(sandbox, command string) string {
	w.Helper()
	body, err := json.Marshal(map[string]string{"command": command})
	require.NoError(w, err)
	request, err := http.NewRequestWithContext(w.Context(), http.MethodPost, "http://"+w.router.HTTP+"/execute", bytes.NewReader(body))
	require.NoError(w, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(proto.HeaderNamespace, w.ns)
	request.Header.Set(proto.HeaderID, sandbox)
	response, err := http.DefaultClient.Do(request)
	require.NoError(w, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(w, err)
	require.Equal(w, http.StatusOK, response.StatusCode, string(answer))
	var result struct {
		Stdout   string `json:"stdout"`
		ExitCode int    `json:"exit_code"`
	}
	require.NoError(w, json.Unmarshal(answer, &result))
	require.Zero(w, result.ExitCode, string(answer))
	return result.Stdout
}

// interactive drives /exec through the router with the client that kubectl uses.
func (w *whole) interactive(sandbox string, options remotecommand.StreamOptions, command ...string) error {
	query := url.Values{"command": command, "stdout": {"true"}}
	for name, wanted := range map[string]bool{"stdin": options.Stdin != nil, "stderr": options.Stderr != nil, "tty": options.Tty} {
		if wanted {
			query.Set(name, "true")
		}
	}
	config := &rest.Config{Host: "http://" + w.router.HTTP}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return addressed{http.Header{proto.HeaderID: {sandbox}, proto.HeaderNamespace: {w.ns}}, next}
	})
	executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, config.Host+"/exec?"+query.Encode())
	require.NoError(w, err)
	return executor.StreamWithContext(w.Context(), options)
}

// addressed adds the headers that name a sandbox.
type addressed struct {
	header http.Header
	next   http.RoundTripper
}

func (a addressed) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	for name, values := range a.header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	return a.next.RoundTrip(request)
}

// oneSize is a terminal window that takes one size.
type oneSize struct{ size *remotecommand.TerminalSize }

func (o *oneSize) Next() *remotecommand.TerminalSize {
	size := o.size
	o.size = nil
	return size
}

// TestWhole follows claims from their creation to the end of everything that they caused.
func TestWhole(t *testing.T) {
	w := newWhole(t, 2)
	w.StartController(t)
	w.router = w.StartRouter(t, unknownWait)
	w.waitPool()

	warm := w.claim("warm")
	cold := w.claim("cold", extensions.EnvVar{Name: "WHO", Value: "the cold one"})
	assert.Equal(t, proto.LaunchWarm, w.sandboxOf(warm).Labels[proto.LabelLaunchType])
	assert.Equal(t, proto.LaunchCold, w.sandboxOf(cold).Labels[proto.LabelLaunchType])
	assert.Equal(t, "cold", cold.Status.Sandbox.Name)
	assert.NotEqual(t, "warm", warm.Status.Sandbox.Name)

	for _, c := range []*extensions.SandboxClaim{warm, cold} {
		assert.Equal(t, "42\n", w.execute(c.Status.Sandbox.Name, `sh -c 'echo $((6 * 7))'`))
	}
	assert.Equal(t, "the cold one\n", w.execute("cold", `sh -c 'echo "$WHO"'`))

	t.Run("streams and exit code", func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		err := w.interactive(warm.Status.Sandbox.Name, remotecommand.StreamOptions{
			Stdin: strings.NewReader("some words\n"), Stdout: &stdout, Stderr: &stderr,
		}, "sh", "-c", "cat; echo trouble >&2; exit 3")
		var exit executil.CodeExitError
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, 3, exit.Code)
		assert.Equal(t, "some words\n", stdout.String())
		assert.Equal(t, "trouble\n", stderr.String())
	})
	t.Run("terminal", func(t *testing.T) {
		var output bytes.Buffer
		err := w.interactive(warm.Status.Sandbox.Name, remotecommand.StreamOptions{
			Stdin:  strings.NewReader("until stty size | grep -q '33 77'; do sleep 0.05; done; stty size; exit 0\n"),
			Stdout: &output, Tty: true, TerminalSizeQueue: &oneSize{&remotecommand.TerminalSize{Width: 77, Height: 33}},
		}, "sh")
		require.NoError(t, err, output.String())
		assert.Contains(t, output.String(), "33 77")
	})
	t.Run("a command that is not there", func(t *testing.T) {
		err := w.interactive(warm.Status.Sandbox.Name, remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard}, "no-such-command")
		assert.Error(t, err)
	})
	t.Run("the SDK's own sandbox is not the router's to reach before it is claimed", func(t *testing.T) {
		var members agents.SandboxList
		require.NoError(t, w.Client.List(t.Context(), &members, client.InNamespace(w.ns), client.HasLabels{proto.LabelWarmPool}))
		require.NotEmpty(t, members.Items)
		assert.Equal(t, http.StatusNotFound, w.status(members.Items[0].Name))
	})

	for _, c := range []*extensions.SandboxClaim{warm, cold} {
		sandbox := w.sandboxOf(c)
		pod := w.pod(sandbox.Name)
		require.NoError(t, w.Client.Delete(t.Context(), c))
		w.WaitGone(t, sandbox)
		w.WaitGone(t, pod)
		var slices discoveryv1.EndpointSliceList
		require.NoError(t, w.Client.List(t.Context(), &slices, client.InNamespace(w.ns), client.MatchingLabels{proto.LabelSandboxNameHash: proto.NameHash(sandbox.Name)}))
		for i := range slices.Items {
			w.WaitGone(t, &slices.Items[i])
		}
		assert.Eventually(t, func() bool { return w.status(sandbox.Name) == http.StatusGone }, patience, pause, "the router forgets %s", sandbox.Name)
	}
	w.waitPool()
}

// status asks a sandbox for its root and returns the status of the answer.
func (w *whole) status(sandbox string) int {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "http://"+w.router.HTTP+"/", nil)
	require.NoError(w, err)
	request.Header.Set(proto.HeaderNamespace, w.ns)
	request.Header.Set(proto.HeaderID, sandbox)
	response, err := http.DefaultClient.Do(request)
	require.NoError(w, err)
	response.Body.Close()
	return response.StatusCode
}

// TestRestartsLoseNothing kills the router and the controller in the middle of their work.
func TestRestartsLoseNothing(t *testing.T) {
	w := newWhole(t, 2)
	controller := w.StartController(t)
	w.router = w.StartRouter(t, unknownWait)
	w.waitPool()
	kept := w.claim("kept")
	sandbox := w.sandboxOf(kept)
	w.execute(sandbox.Name, `sh -c 'echo here > note'`)

	controller.Kill()
	assert.Equal(t, "here\n", w.execute(sandbox.Name, "cat note"), "the router goes on without a controller")
	orphan := &extensions.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "orphan"}}
	orphan.Spec.WarmPoolRef.Name = "python"
	w.create(orphan)
	w.router.Kill()
	w.Restart(t, controller)
	w.waitClaim(orphan)
	w.Restart(t, w.router)

	assert.Equal(t, "here\n", w.execute(sandbox.Name, "cat note"))
	assert.Equal(t, "there\n", w.execute(orphan.Status.Sandbox.Name, "echo there"))
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(kept), kept))
	assert.Equal(t, sandbox.Name, kept.Status.Sandbox.Name)
	assert.Equal(t, sandbox.UID, w.sandboxOf(kept).UID)
	assert.NotEqual(t, kept.Status.Sandbox.Name, orphan.Status.Sandbox.Name)
	w.waitPool()

	var claimed agents.SandboxList
	require.NoError(t, w.Client.List(t.Context(), &claimed, client.InNamespace(w.ns), client.HasLabels{proto.LabelClaimUID}))
	assert.Len(t, claimed.Items, 2, "one sandbox for each claim")
}

// TestPrinterColumns reads the objects as kubectl get does.
func TestPrinterColumns(t *testing.T) {
	e := env.Get(t)
	for resource, want := range map[string][]string{
		"agents.x-k8s.io/v1beta1/sandboxes":                   {"Name", "Ready", "Reason", "Age"},
		"extensions.agents.x-k8s.io/v1beta1/sandboxclaims":    {"Name", "Ready", "Sandbox", "Reason", "Age"},
		"extensions.agents.x-k8s.io/v1beta1/sandboxwarmpools": {"Name", "Ready", "Desired", "Age"},
		"extensions.agents.x-k8s.io/v1beta1/sandboxtemplates": {"Name", "Age"},
	} {
		httpClient, err := rest.HTTPClientFor(e.Config)
		require.NoError(t, err)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.Config.Host+"/apis/"+resource, nil)
		require.NoError(t, err)
		request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		response, err := httpClient.Do(request)
		require.NoError(t, err)
		var table metav1.Table
		require.NoError(t, json.NewDecoder(response.Body).Decode(&table), resource)
		response.Body.Close()
		var got []string
		for _, column := range table.ColumnDefinitions {
			got = append(got, column.Name)
		}
		assert.Equal(t, want, got, resource)
	}
}
