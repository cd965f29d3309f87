package watch

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/router/route"
	"github.com/dovakiin0/agent-sandbox/test/fakeapi"
	"github.com/dovakiin0/agent-sandbox/test/faults"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cluster is an API server behind a proxy.
type cluster struct {
	*fakeapi.Server
	*faults.Proxy
	kubeconfig string

	mu       sync.Mutex
	requests map[string]int // by verb and path
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	api := fakeapi.New()
	t.Cleanup(api.Close)
	proxy, err := faults.New(api.Addr())
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	kubeconfig, err := api.Kubeconfig(t.TempDir(), proxy.Addr())
	require.NoError(t, err)
	c := &cluster{Server: api, Proxy: proxy, kubeconfig: kubeconfig, requests: map[string]int{}}
	c.before(func(http.ResponseWriter, *http.Request) bool { return false })
	return c
}

// before has h answer the requests that it wants to, for which it returns true, and counts them all.
func (c *cluster) before(h func(http.ResponseWriter, *http.Request) bool) {
	c.Intercept(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		verb := "list"
		if r.URL.Query().Get("watch") == "true" {
			verb = "watch"
		} else if strings.Contains(r.URL.Path, "/nodes/") {
			verb = "get"
		}
		c.mu.Lock()
		c.requests[r.Method+" "+verb+" "+r.URL.Path]++
		c.mu.Unlock()
		if !h(w, r) {
			c.ServeHTTP(w, r)
		}
	}))
}

func (c *cluster) seen() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.requests {
		all = append(all, r)
	}
	return all
}

func (c *cluster) watching(t *testing.T) *running {
	t.Helper()
	return run(t, Options{Discovery: EndpointSlices, Kubeconfig: c.kubeconfig, AllowLoopback: false})
}

const slicesPath = "/apis/discovery.k8s.io/v1/endpointslices"

func TestInformerFollowsSlices(t *testing.T) {
	c := newCluster(t)
	c.Set(slice("s1", "u1", endpoint("10.0.0.1", "p1")))
	unrelated := native("s9", endpoint("10.0.0.9", "p9"))
	delete(unrelated.Labels, proto.LabelSandboxNameHash)
	c.Set(unrelated)
	r := c.watching(t)
	eventually(t, "sync", r.table.Synced)
	require.Equal(t, "p1", r.pod("s1"))
	require.Equal(t, "Unknown", r.pod("s9"), "Services that are no sandbox's do not come")

	c.Set(slice("s2", "u2", endpoint("10.0.0.2", "p2")))
	eventually(t, "add", func() bool { return r.pod("s2") == "p2" })
	c.Set(slice("s2", "u2", endpoint("10.0.0.3", "p3")))
	eventually(t, "update", func() bool { return r.pod("s2") == "p3" })
	c.Delete(slice("s2", "u2"))
	eventually(t, "delete", func() bool { return r.pod("s2") == "Gone" })
	c.Set(slice("s3", "u3", endpoint("169.254.169.254", "p3")))
	eventually(t, "an address that is not believed", func() bool { return r.pod("s3") == "Unready" })
	require.EqualValues(t, 1, r.Invalid())
	require.Less(t, r.Staleness(), time.Minute)
	require.Equal(t, []string{"GET watch " + slicesPath}, c.seen(), "one streaming list that goes on as the watch")
}

func TestInformerOfOneNamespace(t *testing.T) {
	c := newCluster(t)
	c.Set(slice("s1", "u1", endpoint("10.0.0.1", "p1")))
	other := slice("s2", "u2", endpoint("10.0.0.2", "p2"))
	other.Namespace = "other"
	c.Set(other)
	r := run(t, Options{Discovery: EndpointSlices, Kubeconfig: c.kubeconfig, Namespace: "default"})
	eventually(t, "sync", r.table.Synced)
	require.Equal(t, 1, r.table.Len())
	require.Equal(t, []string{"GET watch /apis/discovery.k8s.io/v1/namespaces/default/endpointslices"}, c.seen())
}

func TestInformerOfPods(t *testing.T) {
	c := newCluster(t)
	warm := pod("s1", "u1", "p1", "10.0.0.1")
	warm.Labels[proto.LabelWarmPool] = "abc"
	c.Set(warm)
	r := run(t, Options{Discovery: Pods, Kubeconfig: c.kubeconfig})
	eventually(t, "sync", r.table.Synced)
	require.Equal(t, "Unknown", r.pod("s1"))
	c.Set(pod("s1", "u1", "p1", "10.0.0.1"))
	eventually(t, "adoption", func() bool { return r.pod("s1") == "p1" })
	down := pod("s1", "u1", "p1", "10.0.0.1")
	down.Status.Conditions[0].Status = corev1.ConditionFalse
	c.Set(down)
	eventually(t, "not ready", func() bool { return r.pod("s1") == "Unready" })
	c.Delete(down)
	eventually(t, "deleted", func() bool { return r.pod("s1") == "Unknown" })
	require.Equal(t, []string{"GET watch /api/v1/pods"}, c.seen())
}

// An API server that knows no streaming lists.
func TestInformerListsWhereItMust(t *testing.T) {
	c := newCluster(t)
	c.before(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("sendInitialEvents") == "" {
			return false
		}
		http.Error(w, "sendInitialEvents is forbidden", http.StatusUnprocessableEntity)
		return true
	})
	c.Set(slice("s1", "u1", endpoint("10.0.0.1", "p1")))
	r := c.watching(t)
	eventually(t, "sync", r.table.Synced)
	require.Equal(t, "p1", r.pod("s1"))
	c.Set(slice("s2", "u2", endpoint("10.0.0.2", "p2")))
	eventually(t, "add", func() bool { return r.pod("s2") == "p2" })
	require.Contains(t, c.seen(), "GET list "+slicesPath)
}

func TestInformerWaitsForASlowList(t *testing.T) {
	c := newCluster(t)
	answer := make(chan struct{})
	c.before(func(http.ResponseWriter, *http.Request) bool { <-answer; return false })
	c.Set(slice("s1", "u1", endpoint("10.0.0.1", "p1")))
	r := c.watching(t)
	eventually(t, "request", func() bool { return len(c.seen()) > 0 })
	require.Equal(t, "Unsynced", r.pod("s1"), "nothing is said of what is not known yet")
	close(answer)
	eventually(t, "sync", r.table.Synced)
	require.Equal(t, "p1", r.pod("s1"))
}

func TestInformerWaitsForTheServer(t *testing.T) {
	c := newCluster(t)
	c.Cut()
	c.Set(slice("s1", "u1", endpoint("10.0.0.1", "p1")))
	r := c.watching(t)
	eventually(t, "attempts", func() bool { return c.Opened() >= 2 })
	require.Equal(t, "Unsynced", r.pod("s1"))
	c.Heal()
	eventually(t, "sync", r.table.Synced)
	require.Equal(t, "p1", r.pod("s1"))
}

// recovery is the time within which changes must be known after an outage.
const recovery = 30 * time.Second

// outage runs a fault and checks that what is known stays, that the age of the knowledge shows, and that a change made
// meanwhile is known soon after the fault ends.
func outage(t *testing.T, begin, end func(*cluster)) {
	c := newCluster(t)
	c.Set(slice("s1", "u1", endpoint("10.0.0.1", "p1")))
	r := c.watching(t)
	eventually(t, "sync", r.table.Synced)
	before := r.find("s1").Endpoint
	begin(c)
	c.Set(slice("s2", "u2", endpoint("10.0.0.2", "p2")))
	eventually(t, "staleness", func() bool { return r.Staleness() > 200*time.Millisecond })
	require.Equal(t, "p1", r.pod("s1"))
	require.Equal(t, "Unknown", r.pod("s2"))
	require.True(t, r.table.Synced())
	end(c)
	healed := time.Now()
	eventually(t, "recovery", func() bool { return r.pod("s2") == "p2" })
	require.Less(t, time.Since(healed), recovery)
	require.Same(t, before, r.find("s1").Endpoint)
	require.Zero(t, *before.Payload, "its connections were left alone")
}

func TestOutageWithConnectionsCut(t *testing.T) {
	outage(t, (*cluster).Cut, (*cluster).Heal)
}

func TestOutageWithBytesStalled(t *testing.T) {
	outage(t, (*cluster).Stall, (*cluster).Heal)
}

func TestOutageWithoutFIN(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the ping of a dead connection")
	}
	outage(t, (*cluster).Lose, func(*cluster) {})
}

// Everyone asks at once after the API server forgot its history: no route may be missing meanwhile.
func TestHistoryThatIsGone(t *testing.T) {
	c := newCluster(t)
	for _, name := range []string{"s1", "s2", "s3"} {
		c.Set(slice(name, "u-"+name, endpoint("10.0.0.1", "p-"+name)))
	}
	r := c.watching(t)
	eventually(t, "sync", r.table.Synced)
	done := make(chan struct{})
	var missing atomic.Int64
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if r.pod("s1") != "p-s1" {
					missing.Add(1)
				}
			}
		}
	})
	c.Cut()
	c.Set(slice("s4", "u4", endpoint("10.0.0.4", "p4")))
	c.Delete(slice("s2", "u-s2"))
	c.Compact()
	c.Heal()
	eventually(t, "relist", func() bool { return r.pod("s4") == "p4" })
	require.Equal(t, "Gone", r.pod("s2"))
	close(done)
	reader.Wait()
	require.Zero(t, missing.Load())
}

// After an outage the API server says twice that there is nothing, and then everything is there again.
func TestEmptyListAfterAnOutage(t *testing.T) {
	c := newCluster(t)
	c.Set(slice("s1", "u1", endpoint("10.0.0.1", "p1")))
	r := c.watching(t)
	eventually(t, "sync", r.table.Synced)
	before := r.find("s1").Endpoint

	empty := fakeapi.New()
	t.Cleanup(empty.Close)
	for range 10 { // its version is no older
		o := slice("x", "u")
		empty.Set(o)
		empty.Delete(o)
	}
	var lies atomic.Int64
	c.before(func(w http.ResponseWriter, req *http.Request) bool {
		if lies.Add(1) > 2 {
			return false
		}
		q := req.URL.Query()
		q.Del("resourceVersion")
		req.URL.RawQuery = q.Encode()
		empty.ServeHTTP(w, req)
		return true
	})
	c.Compact()
	c.Disconnect()
	eventually(t, "doubt", func() bool { return r.Doubts() == 1 })
	require.Equal(t, "p1", r.pod("s1"))
	c.Set(slice("s2", "u2", endpoint("10.0.0.2", "p2")))
	eventually(t, "the truth", func() bool { return r.pod("s2") == "p2" })
	require.Same(t, before, r.find("s1").Endpoint)
	require.Zero(t, *before.Payload)
}

func TestEmptyListThatIsConfirmed(t *testing.T) {
	c := newCluster(t)
	c.Set(slice("s1", "u1", endpoint("10.0.0.1", "p1")))
	r := c.watching(t)
	eventually(t, "sync", r.table.Synced)
	c.Cut()
	c.Delete(slice("s1", "u1"))
	c.Compact()
	c.Heal()
	eventually(t, "doubt", func() bool { return r.Doubts() == 1 })
	require.Equal(t, "p1", r.pod("s1"))
	eventually(t, "confirmation", func() bool { return r.pod("s1") == "Gone" })
}

// An API server whose connection is well but who says nothing.
func TestSilenceEndsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &informer{stats: &Stats{}}
		var ended []string
		end := func(what string) func() { return func() { ended = append(ended, what) } }
		in.begin(end("first"))
		time.Sleep(silence - 1)
		in.heard()
		time.Sleep(silence - 1)
		require.Empty(t, ended)
		in.begin(end("second"))
		require.Equal(t, []string{"first"}, ended, "there is one call at a time")
		in.limit(end("second, connected"))
		time.Sleep(silence)
		synctest.Wait()
		require.Equal(t, []string{"first", "second, connected"}, ended)
		require.Equal(t, 2*silence-1, in.stats.Staleness())
	})
}

func TestZone(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "zone-n"}}}
	for name, c := range map[string]struct {
		flag     string
		env      map[string]string
		refuse   bool
		want     route.Zone // of an endpoint in want's zone
		zone     string
		asksNode bool
	}{
		"flag first":          {flag: "zone-f", env: map[string]string{"ZONE": "zone-e", "NODE_NAME": "node-1"}, zone: "zone-f", want: route.ZoneSame},
		"then ZONE":           {env: map[string]string{"ZONE": "zone-e", "NODE_ZONE": "zone-z", "NODE_NAME": "node-1"}, zone: "zone-e", want: route.ZoneSame},
		"then NODE_ZONE":      {env: map[string]string{"NODE_ZONE": "zone-z", "NODE_NAME": "node-1"}, zone: "zone-z", want: route.ZoneSame},
		"then the node":       {env: map[string]string{"NODE_NAME": "node-1"}, zone: "zone-n", want: route.ZoneSame, asksNode: true},
		"node not there":      {env: map[string]string{"NODE_NAME": "node-2"}, zone: "zone-n", want: route.ZoneUnknown, asksNode: true},
		"node not for us":     {env: map[string]string{"NODE_NAME": "node-1"}, refuse: true, zone: "zone-n", want: route.ZoneUnknown, asksNode: true},
		"nothing to go by":    {zone: "zone-n", want: route.ZoneUnknown},
		"known, but not this": {flag: "zone-f", zone: "zone-n", want: route.ZoneCross},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{"ZONE", "NODE_ZONE", "NODE_NAME"} {
				t.Setenv(v, c.env[v])
			}
			api := newCluster(t)
			api.before(func(w http.ResponseWriter, r *http.Request) bool {
				if c.refuse && strings.Contains(r.URL.Path, "/nodes/") {
					http.Error(w, "forbidden", http.StatusForbidden)
					return true
				}
				return false
			})
			api.Set(node)
			e := endpoint("10.0.0.1", "p1")
			e.Zone = &c.zone
			api.Set(slice("s1", "u1", e))
			r := run(t, Options{Discovery: EndpointSlices, Kubeconfig: api.kubeconfig, Zone: c.flag})
			eventually(t, "sync", r.table.Synced)
			assert.Equal(t, c.want, r.find("s1").Zone)
			asked := false
			for _, request := range api.seen() {
				asked = asked || strings.HasPrefix(request, "GET get /api/v1/nodes/")
			}
			assert.Equal(t, c.asksNode, asked)
		})
	}
}
