package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/test/env"
	"github.com/dovakiin0/agent-sandbox/test/faults"
	"github.com/dovakiin0/agent-sandbox/test/stack"
)

// recovery is how soon after an outage the router must know what happened meanwhile.
const recovery = 30 * time.Second

// routes are sandboxes of one namespace whose EndpointSlices the test itself publishes: no controller runs.
type routes struct {
	*sandboxes
	proxy      *faults.Proxy // between the router and the API server
	kubeconfig string        // leads through proxy
}

func newRoutes(t *testing.T) *routes {
	r := &routes{sandboxes: on(t, env.Get(t))}
	target, err := url.Parse(r.Config.Host)
	require.NoError(t, err)
	r.proxy, err = faults.New(target.Host)
	require.NoError(t, err)
	t.Cleanup(r.proxy.Close)
	r.kubeconfig = r.writeKubeconfig(func(c *clientcmdapi.Config) {
		for _, cluster := range c.Clusters {
			cluster.Server = "https://" + r.proxy.Addr()
		}
	})
	return r
}

func (r *routes) writeKubeconfig(change func(*clientcmdapi.Config)) string {
	config, err := clientcmd.LoadFromFile(r.Kubeconfig)
	require.NoError(r, err)
	change(config)
	path := filepath.Join(r.TempDir(), "kubeconfig")
	require.NoError(r, clientcmd.WriteToFile(*config, path))
	return path
}

// serve starts a pod's server that answers with the given text, and returns the pod's address. It listens where
// --dial-translate leads, at an address that no other process has.
func (r *routes) serve(text string) string {
	var l net.Listener
	var suffix string
	for range 100 {
		suffix = fmt.Sprintf("%d.%d.%d", 240+rand.IntN(15), rand.IntN(256), 1+rand.IntN(254))
		var err error
		if l, err = net.Listen("tcp", "127."+suffix+":8888"); err == nil {
			break
		}
	}
	require.NotNil(r, l, "no free address")
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })}
	go func() { _ = server.Serve(l) }()
	r.Cleanup(func() { server.Close() })
	return "10." + suffix
}

// publish makes a Sandbox and the EndpointSlice that the controller would make for it, with a pod that answers with
// its name.
func (r *routes) publish(name string) {
	sb := r.bare(name)
	r.create(sb)
	r.create(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.ns, Name: name + "-route",
			Labels: map[string]string{
				discoveryv1.LabelManagedBy: proto.SliceManagedBy, proto.LabelSandboxNameHash: proto.NameHash(name),
			},
			Annotations:     map[string]string{proto.AnnotationRouteState: string(proto.RouteRunning)},
			OwnerReferences: controllerRef(sb),
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{r.serve(name)}}},
	})
}

// answer is what a request through the router got.
type answer struct {
	status int
	body   string
	header http.Header
}

func (r *routes) ask(router *stack.Process, name string) answer { return r.get(router.HTTP, "/", name) }

// get sends a request to one of the router's ports, for a sandbox when name is not empty.
func (r *routes) get(addr, path, name string) answer {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+addr+path, nil)
	require.NoError(r, err)
	if name != "" {
		req.Header.Set(proto.HeaderID, name)
		req.Header.Set(proto.HeaderNamespace, r.ns)
	}
	response, err := http.DefaultClient.Do(req)
	require.NoError(r, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(r, err)
	return answer{response.StatusCode, string(body), response.Header}
}

func (r *routes) reaches(router *stack.Process, name string) bool {
	a := r.ask(router, name)
	return a.status == http.StatusOK && a.body == name
}

func (r *routes) eventually(what string, within time.Duration, condition func() bool) {
	r.Helper()
	require.Eventually(r, condition, within, 20*time.Millisecond, what)
}

// metric is the value of one metric without labels.
func (r *routes) metric(router *stack.Process, name string) float64 {
	r.Helper()
	lines := bufio.NewScanner(strings.NewReader(r.get(router.Metrics, "/metrics", "").body))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			require.NoError(r, err)
			return v
		}
	}
	r.Fatal("no metric " + name)
	return 0
}

const staleness = "sandbox_router_discovery_staleness_seconds"

// TestDiscoveryOutages takes the API server away from the router in several ways. What is known stays reachable, the
// router stays ready, and what changed meanwhile is known soon after.
func TestDiscoveryOutages(t *testing.T) {
	for name, c := range map[string]struct{ begin, end func(*routes) }{
		"cut":   {func(r *routes) { r.proxy.Cut() }, func(r *routes) { r.proxy.Heal() }},
		"stall": {func(r *routes) { r.proxy.Stall() }, func(r *routes) { r.proxy.Heal() }},
		"lose":  {func(r *routes) { r.proxy.Lose() }, func(*routes) {}},
		"slow":  {func(r *routes) { r.proxy.Delay(2 * time.Second) }, func(r *routes) { r.proxy.Heal() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoutes(t)
			r.publish("before")
			router := r.StartRouter(t, "--kubeconfig="+r.kubeconfig)
			require.True(t, r.reaches(router, "before"))
			c.begin(r)
			r.publish("meanwhile")
			r.eventually("staleness", recovery, func() bool { return r.metric(router, staleness) > 1 })
			require.True(t, r.reaches(router, "before"))
			require.Equal(t, http.StatusOK, r.get(router.Health, "/readyz", "").status)
			c.end(r)
			r.eventually("recovery", recovery, func() bool { return r.reaches(router, "meanwhile") })
			require.True(t, r.reaches(router, "before"))
		})
	}
}

// TestDiscoveryAcrossRestartOfTheAPIServer is an outage after which the API server remembers nothing of the watch.
func TestDiscoveryAcrossRestartOfTheAPIServer(t *testing.T) {
	r := newRoutes(t)
	r.publish("before")
	r.publish("deleted")
	router := r.StartRouter(t)
	require.True(t, r.reaches(router, "before"))
	require.True(t, r.reaches(router, "deleted"))
	require.NoError(t, r.ControlPlane.Terminate())
	<-r.ControlPlane.Done()
	require.True(t, r.reaches(router, "before"))
	require.Equal(t, http.StatusOK, r.get(router.Health, "/readyz", "").status)
	r.Restart(t, r.ControlPlane)
	r.publish("after")
	require.NoError(t, r.Client.Delete(t.Context(), r.bare("deleted")))
	r.eventually("recovery", recovery, func() bool { return r.reaches(router, "after") })
	r.eventually("deletion", recovery, func() bool { return r.ask(router, "deleted").status == http.StatusGone })
	require.True(t, r.reaches(router, "before"))
}

// TestDiscoverySlowStart has the first list take its time: the router lives, is not ready, and says so.
func TestDiscoverySlowStart(t *testing.T) {
	r := newRoutes(t)
	r.publish("s")
	r.proxy.Stall()
	host := "127.0.0.1"
	ports := freePorts(t, host, 2)
	proxy, health := ports[0], ports[1]
	started := make(chan *stack.Process, 1)
	go func() {
		p, err := r.Stack.StartRouter(context.WithoutCancel(t.Context()), "--kubeconfig="+r.kubeconfig,
			"--http-bind-address="+proxy, "--health-probe-bind-address="+health, "--route-wait=100ms")
		assert.NoError(t, err)
		started <- p
	}()
	r.eventually("listening", time.Minute, func() bool {
		c, err := net.Dial("tcp", health)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	require.Equal(t, http.StatusServiceUnavailable, r.get(health, "/readyz", "").status)
	require.Equal(t, http.StatusOK, r.get(health, "/healthz", "").status)
	for _, name := range []string{"s", "nobody"} {
		a := r.get(proxy, "/", name)
		require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
		require.Contains(t, a.body, proto.CodeRouterStarting)
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
	r.proxy.Heal()
	p := <-started
	require.NotNil(t, p)
	t.Cleanup(func() { p.Stop(stack.StopGrace) })
	require.True(t, r.reaches(p, "s"))
	require.Equal(t, http.StatusNotFound, r.ask(p, "nobody").status)
}

func freePorts(t *testing.T, host string, n int) (addrs []string) {
	for range n {
		l, err := net.Listen("tcp", host+":0")
		require.NoError(t, err)
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// TestDiscoveryRights runs the router with nothing but the rights it says it needs.
func TestDiscoveryRights(t *testing.T) {
	for name, c := range map[string]struct {
		discovery string
		rule      rbacv1.PolicyRule
	}{
		"endpointslices": {"endpointslices", rbacv1.PolicyRule{
			APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"},
		}},
		"pods": {"pods", rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoutes(t)
			r.publish("s")
			meta := metav1.ObjectMeta{Namespace: r.ns, Name: "router"}
			r.create(&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{c.rule}})
			r.create(&rbacv1.RoleBinding{
				ObjectMeta: meta,
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "router"},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "router"}},
			})
			kubeconfig := r.writeKubeconfig(func(config *clientcmdapi.Config) {
				for _, user := range config.AuthInfos {
					user.Impersonate = "router"
				}
			})
			t.Setenv("NODE_NAME", "node-a")
			router := r.StartRouter(t, "--kubeconfig="+kubeconfig, "--discovery="+c.discovery, "--namespace="+r.ns)
			if c.discovery == "endpointslices" {
				require.True(t, r.reaches(router, "s"))
			}
		})
	}
}
