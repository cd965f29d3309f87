package reconcile

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

func terminating(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) }

// ownedByKind makes an extension object the controller of a Sandbox.
func ownedByKind(kind, name string) func(*agents.Sandbox) {
	return func(sb *agents.Sandbox) {
		sb.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "extensions.agents.x-k8s.io/v1beta1", Kind: kind, Name: name, UID: "uid-of-owner", Controller: new(true),
		}}
	}
}

func TestBuildRoute(t *testing.T) {
	sb := newSandbox("s")
	published := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{TargetRef: &corev1.ObjectReference{UID: "uid-of-pod"}}},
	}
	other := published.DeepCopy()
	other.Endpoints[0].TargetRef.UID = "another"

	for name, c := range map[string]struct {
		sandbox []func(*agents.Sandbox)
		pod     *corev1.Pod
		expired bool
		current *discoveryv1.EndpointSlice
		state   proto.RouteState
		ready   string // conditions ready, serving, terminating of the endpoint; "" for no endpoint
	}{
		"no pod":                   {nil, nil, false, nil, proto.RouteStarting, ""},
		"pending":                  {nil, runningPod(phase(corev1.PodPending)), false, nil, proto.RouteStarting, ""},
		"never ready":              {nil, runningPod(notReady), false, nil, proto.RouteStarting, ""},
		"never ready, another was": {nil, runningPod(notReady), false, other, proto.RouteStarting, ""},
		"no longer ready":          {nil, runningPod(notReady), false, published, proto.RouteStarting, "false false false"},
		"ready":                    {nil, runningPod(), false, nil, proto.RouteRunning, "true true false"},
		"terminating":              {nil, runningPod(terminating), false, published, proto.RouteStarting, "false true true"},
		"terminating, not ready":   {nil, runningPod(terminating, notReady), false, published, proto.RouteStarting, "false false true"},
		"finished":                 {nil, runningPod(phase(corev1.PodSucceeded)), false, published, proto.RouteFinished, ""},
		"failed":                   {nil, runningPod(phase(corev1.PodFailed)), false, published, proto.RouteFinished, ""},
		"suspending":               {[]func(*agents.Sandbox){suspended}, runningPod(), false, published, proto.RouteSuspending, "true true false"},
		"suspending, terminating":  {[]func(*agents.Sandbox){suspended}, runningPod(terminating), false, published, proto.RouteSuspending, "false true true"},
		"suspended":                {[]func(*agents.Sandbox){suspended}, nil, false, published, proto.RouteSuspended, ""},
		"expired":                  {nil, runningPod(), true, published, proto.RouteExpired, ""},
		"expired and suspended":    {[]func(*agents.Sandbox){suspended}, nil, true, published, proto.RouteExpired, ""},
	} {
		t.Run(name, func(t *testing.T) {
			slice := buildRoute(newSandbox("s", c.sandbox...), c.pod, "zone-a", c.expired, c.current)
			require.NotNil(t, slice)
			assert.Equal(t, string(c.state), slice.Annotations[proto.AnnotationRouteState])
			if c.ready == "" {
				assert.Empty(t, slice.Endpoints)
				return
			}
			require.Len(t, slice.Endpoints, 1)
			got := slice.Endpoints[0].Conditions
			text := func(b *bool) string {
				if *b {
					return "true"
				}
				return "false"
			}
			assert.Equal(t, c.ready, text(got.Ready)+" "+text(got.Serving)+" "+text(got.Terminating))
		})
	}

	slice := buildRoute(newSandbox("s", ownedByKind("SandboxClaim", "c")), runningPod(), "zone-a", false, nil)
	assert.Equal(t, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "s-route", Namespace: "ns",
			Labels: map[string]string{
				"endpointslice.kubernetes.io/managed-by": "agent-sandbox-controller",
				"agents.x-k8s.io/sandbox-name-hash":      proto.NameHash("s"),
			},
			Annotations:     map[string]string{"agents.x-k8s.io/route-state": "Running", "agents.x-k8s.io/claim-name": "c"},
			OwnerReferences: []metav1.OwnerReference{newControllerRef(sb, sandboxGVK)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{"10.128.0.7"},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "s", UID: "uid-of-pod"},
			NodeName:   new("node-1"),
			Zone:       new("zone-a"),
		}},
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8888))}},
	}, slice)
}

func TestUnclaimedMembersHaveNoRoute(t *testing.T) {
	for name, change := range map[string]func(*agents.Sandbox){
		"by label": func(sb *agents.Sandbox) { sb.Labels = map[string]string{proto.LabelWarmPool: "p"} },
		"by owner": ownedByKind("SandboxWarmPool", "p"),
	} {
		sb := newSandbox("s", change)
		assert.Nil(t, buildRoute(sb, runningPod(), "", false, nil), name)

		f := newFixture(t, sb)
		f.settle("s")
		f.run("s")
		f.settle("s")
		assert.Equal(t, metav1.ConditionTrue, f.ready("s").Status, name)
		assert.False(t, f.get(&discoveryv1.EndpointSlice{}, routeName("s")), name)
	}
}

func TestRouteAddressFamily(t *testing.T) {
	ips := func(list ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.PodIPs = nil
			for _, ip := range list {
				p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
			}
		}
	}
	for name, c := range map[string]struct {
		ips  []string
		want string
	}{
		"IPv4":             {[]string{"10.0.0.1"}, "IPv4 10.0.0.1"},
		"IPv6":             {[]string{"2001:DB8::1"}, "IPv6 2001:db8::1"},
		"IPv4 is better":   {[]string{"2001:db8::1", "10.0.0.1"}, "IPv4 10.0.0.1"},
		"IPv4 in IPv6":     {[]string{"::ffff:10.0.0.1"}, "IPv4 10.0.0.1"},
		"nonsense skipped": {[]string{"x", "10.0.0.1"}, "IPv4 10.0.0.1"},
	} {
		slice := buildRoute(newSandbox("s"), runningPod(ips(c.ips...)), "", false, nil)
		require.Len(t, slice.Endpoints, 1, name)
		assert.Equal(t, c.want, string(slice.AddressType)+" "+slice.Endpoints[0].Addresses[0], name)
		assert.Nil(t, slice.Endpoints[0].Zone)
	}
	six := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv6}
	assert.Equal(t, discoveryv1.AddressTypeIPv6, buildRoute(newSandbox("s"), nil, "", false, six).AddressType, "kept without an endpoint")
}

func TestRouteName(t *testing.T) {
	assert.Equal(t, "s-route", routeName("s"))
	long := strings.Repeat("a", 253)
	assert.Len(t, routeName(long), 253)
	assert.NotEqual(t, routeName(long), routeName(long[:252]+"b"))
	assert.Equal(t, strings.Repeat("a", 247)+"-route", routeName(strings.Repeat("a", 247)))
}

func TestPublish(t *testing.T) {
	claimed := func() *agents.Sandbox { return newSandbox("s", ownedByKind("SandboxClaim", "c"), namesPod("s")) }
	f := newFixture(t, claimed(), ownedBy(claimed(), runningPod()))
	sb := f.sandbox("s")
	require.NoError(t, f.shared.routes.Publish(t.Context(), sb))
	assert.Equal(t, []string{"create EndpointSlice"}, f.wrote())
	assert.Equal(t, "c", f.slice("s").Annotations[proto.AnnotationRouteClaim])
	require.NoError(t, f.shared.routes.Publish(t.Context(), sb))
	assert.Empty(t, f.wrote(), "idempotent")

	f.settle("s")
	assert.NotContains(t, f.wrote(), "create EndpointSlice", "the Sandbox reconciler finds it")

	t.Run("a view from before the adoption leaves it", func(t *testing.T) {
		member := newSandbox("s", ownedByKind("SandboxWarmPool", "p"))
		require.NoError(t, f.shared.routes.publish(t.Context(), member, f.pod("s")))
		assert.Len(t, f.slice("s").Endpoints, 1)
	})
	t.Run("drift is repaired", func(t *testing.T) {
		edit(f, f.slice("s"), func(s *discoveryv1.EndpointSlice) {
			s.Labels, s.Annotations, s.Ports = nil, nil, nil
			s.Endpoints[0].Addresses = []string{"10.9.9.9"}
		})
		require.NoError(t, f.shared.routes.Publish(t.Context(), sb))
		slice := f.slice("s")
		assert.Equal(t, []string{"10.128.0.7"}, slice.Endpoints[0].Addresses)
		assert.Equal(t, proto.SliceManagedBy, slice.Labels[discoveryv1.LabelManagedBy])
		assert.Equal(t, "c", slice.Annotations[proto.AnnotationRouteClaim])
		assert.Len(t, slice.Ports, 1)
	})
	t.Run("a Sandbox that is Ready needs a pod", func(t *testing.T) {
		ready := sb.DeepCopy()
		ready.Status = sandboxStatus(ready, children{pod: f.pod("s")}, "d", f.now)
		require.NoError(t, f.shared.routes.Publish(t.Context(), ready))
		require.NoError(t, f.client.Delete(t.Context(), f.pod("s")))
		assert.ErrorContains(t, f.shared.routes.Publish(t.Context(), ready), "no longer ready")
	})
}

func TestPublishOverWhatIsThere(t *testing.T) {
	before := newSandbox("s")
	before.UID = "uid-of-the-first"
	slice := func(change ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		s := buildRoute(before, nil, "", false, nil)
		for _, c := range change {
			c(s)
		}
		return s
	}
	orphan := func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = nil }
	foreign := func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = []metav1.OwnerReference{foreignRef} }
	ours := func(s *discoveryv1.EndpointSlice) {
		s.OwnerReferences = []metav1.OwnerReference{newControllerRef(newSandbox("s"), sandboxGVK)}
	}
	six := func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeIPv6 }

	for name, c := range map[string]struct {
		existing *discoveryv1.EndpointSlice
		lagging  bool
		writes   []string
		err      string
	}{
		"an earlier sandbox's":   {slice(), false, []string{"delete EndpointSlice", "create EndpointSlice"}, ""},
		"of the other family":    {slice(ours, six), false, []string{"delete EndpointSlice", "create EndpointSlice"}, ""},
		"nobody's":               {slice(orphan), false, nil, `publish route: EndpointSlice "s-route" does not belong to Sandbox "s"`},
		"somebody else's":        {slice(foreign), false, nil, `publish route: EndpointSlice "s-route" does not belong to Sandbox "s"`},
		"ours, not in the cache": {slice(ours), true, []string{"create EndpointSlice", "patch EndpointSlice"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sb := newSandbox("s")
			pod := ownedBy(sb, runningPod())
			f := newFixture(t, sb, pod, c.existing)
			if c.lagging {
				f.shared.client.Client = &hidden{Client: f.client, hide: func(o client.Object) bool {
					_, ok := o.(*discoveryv1.EndpointSlice)
					return ok
				}}
			}
			err := f.shared.routes.publish(t.Context(), sb, pod)
			assert.Equal(t, c.writes, f.wrote())
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.True(t, controlledBy(f.slice("s"), sb.UID))
			assert.Len(t, f.slice("s").Endpoints, 1)
		})
	}
}

func TestMemberThatWasPublishedIsWithdrawn(t *testing.T) {
	f := newFixture(t, newSandbox("s"))
	f.settle("s")
	f.slice("s")
	edit(f, f.sandbox("s"), func(sb *agents.Sandbox) { sb.Labels = map[string]string{proto.LabelWarmPool: "p"} })
	f.settle("s")
	assert.False(t, f.get(&discoveryv1.EndpointSlice{}, routeName("s")))
}

func TestRouteZone(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "by-node"}}}
	f := newFixture(t, node)
	p := f.shared.routes
	assert.Equal(t, "by-node", p.zone(t.Context(), runningPod()))
	assert.Equal(t, "by-pod", p.zone(t.Context(), runningPod(func(pod *corev1.Pod) {
		pod.Labels = map[string]string{corev1.LabelTopologyZone: "by-pod"}
	})))
	assert.Empty(t, p.zone(t.Context(), runningPod(func(pod *corev1.Pod) { pod.Spec.NodeName = "gone" })))
	assert.Empty(t, p.zone(t.Context(), runningPod(func(pod *corev1.Pod) { pod.Spec.NodeName = "" })))
	assert.Empty(t, p.zone(t.Context(), nil))
}

func TestConcurrentPublishersWriteOnce(t *testing.T) {
	sb := newSandbox("s")
	pod := ownedBy(sb, runningPod())
	f := newFixture(t, sb, pod)
	f.shared.client.Client = &hidden{Client: f.client, hide: func(o client.Object) bool {
		_, ok := o.(*discoveryv1.EndpointSlice)
		return ok
	}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { assert.NoError(t, f.shared.routes.publish(context.WithoutCancel(t.Context()), sb, pod)) })
	}
	wg.Wait()
	assert.Equal(t, []string{"create EndpointSlice"}, f.wrote())
}
