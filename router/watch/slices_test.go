package watch

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/router/route"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func to[T any](v T) *T { return &v }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// endpoint is a ready endpoint of a pod.
func endpoint(ip, pod string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{ip}}
	if pod != "" {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", UID: types.UID(pod)}
	}
	return e
}

// slice is an EndpointSlice as our controller publishes it.
func slice(sandbox, uid string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: sandbox,
			Labels: map[string]string{
				proto.LabelSandboxNameHash: proto.NameHash(sandbox), discoveryv1.LabelManagedBy: proto.SliceManagedBy,
			},
			Annotations:       map[string]string{proto.AnnotationRouteState: string(proto.RouteRunning)},
			OwnerReferences:   []metav1.OwnerReference{sandboxRef(sandbox, uid)},
			CreationTimestamp: metav1.Unix(1000, 0),
			ResourceVersion:   "1",
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   endpoints,
	}
}

func sandboxRef(name, uid string) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: "agents.x-k8s.io/v1beta1", Kind: "Sandbox", Name: name, UID: types.UID(uid), Controller: to(true),
	}
}

// native is an EndpointSlice as Kubernetes writes it for the Service of a Sandbox.
func native(service string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: service + "-x7k2p",
			Labels: map[string]string{
				proto.LabelSandboxNameHash: proto.NameHash(service), discoveryv1.LabelServiceName: service,
				discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Service", Name: service, UID: "service-uid", Controller: to(true)},
			},
			CreationTimestamp: metav1.Unix(1000, 0),
			ResourceVersion:   "2",
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   endpoints,
	}
}

func read(s *discoveryv1.EndpointSlice) *part {
	p, _ := fromSlice(s, false)
	return p
}

func TestReadOwnSlice(t *testing.T) {
	s := slice("s1", "u1", endpoint("10.0.0.1", "p1"))
	s.Annotations[proto.AnnotationRouteState] = "Suspending"
	s.Annotations[proto.AnnotationRouteClaim] = "c1"
	s.ResourceVersion = "77"
	s.Endpoints[0].Zone = to("zone-a")
	s.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zone-b"}}}
	p, invalid := fromSlice(s, false)
	require.Zero(t, invalid)
	require.Equal(t, &part{
		object: key{"default", "s1"}, version: 77, created: 1000,
		sandbox: "s1", sandboxUID: "u1", claim: "c1", state: route.StateSuspending, proof: true,
		endpoints: []route.Address{
			{Addr: addr("10.0.0.1"), PodUID: "p1", Zone: "zone-a", HintZones: []string{"zone-b"}},
		},
	}, p)
}

func TestReadNativeSlice(t *testing.T) {
	s := native("s1", endpoint("10.0.0.1", "p1"))
	s.Annotations = map[string]string{proto.AnnotationRouteState: "Suspended", proto.AnnotationRouteClaim: "c1"}
	p := read(s)
	require.Equal(t, "s1", p.sandbox)
	require.Empty(t, p.sandboxUID)
	require.Empty(t, p.claim, "annotations of a Service are its author's, not the controller's")
	require.Equal(t, route.StateRunning, p.state)
	require.False(t, p.proof)
	require.Len(t, p.endpoints, 1)
}

func TestWhichSandboxASliceIsAbout(t *testing.T) {
	otherKind, otherGroup, anyVersion, noController := slice("s1", "u1"), slice("s1", "u1"), slice("s1", "u1"), slice("s1", "u1")
	otherKind.OwnerReferences[0].Kind = "Deployment"
	otherGroup.OwnerReferences[0].APIVersion = "example.com/v1"
	anyVersion.OwnerReferences[0].APIVersion = "agents.x-k8s.io/v1alpha1"
	noController.OwnerReferences[0].Controller = nil
	unclaimed, unclaimedService := slice("s1", "u1"), native("s1")
	unclaimed.Labels[proto.LabelWarmPool] = "abc"
	unclaimedService.Labels[proto.LabelWarmPool] = "abc"
	stray := native("s1")
	delete(stray.Labels, discoveryv1.LabelServiceName)
	for name, c := range map[string]struct {
		s    *discoveryv1.EndpointSlice
		want string
	}{
		"owned by the sandbox":           {slice("s1", "u1"), "s1"},
		"owned, any version of the API":  {anyVersion, "s1"},
		"owned by another kind":          {otherKind, ""},
		"owned by a kind of another API": {otherGroup, ""},
		"owned, but not controlled":      {noController, ""},
		"of a service":                   {native("s1"), "s1"},
		"of nothing":                     {stray, ""},
		"of an unclaimed pool member":    {unclaimed, ""},
		"of the service of such a one":   {unclaimedService, ""},
	} {
		assert.Equal(t, c.want, read(c.s).sandbox, name)
	}
}

func TestConditions(t *testing.T) {
	yes, no := to(true), to(false)
	for _, c := range []struct {
		ready, serving, terminating *bool
		want                        route.Condition
	}{
		{nil, nil, nil, route.Ready},
		{yes, nil, nil, route.Ready},
		{yes, yes, no, route.Ready},
		{no, nil, nil, route.NotReady},
		{no, yes, no, route.NotReady},
		{no, yes, yes, route.Terminating},
		{no, no, yes, route.NotReady},
		{no, nil, yes, route.NotReady},
		{yes, yes, yes, route.Terminating}, // a Service with publishNotReadyAddresses
		{nil, nil, yes, route.Terminating},
	} {
		got := condition(&discoveryv1.EndpointConditions{Ready: c.ready, Serving: c.serving, Terminating: c.terminating})
		assert.Equal(t, c.want, got, "%v %v %v", c.ready, c.serving, c.terminating)
	}
}

func TestUnknownStateIsNoLeaveToDial(t *testing.T) {
	s := slice("s1", "u1")
	s.Annotations[proto.AnnotationRouteState] = "Hibernating"
	require.Equal(t, route.StateStarting, read(s).state)
	delete(s.Annotations, proto.AnnotationRouteState)
	require.Equal(t, route.StateRunning, read(s).state)
	for _, state := range []proto.RouteState{
		proto.RouteRunning, proto.RouteStarting, proto.RouteSuspending, proto.RouteSuspended, proto.RouteFinished,
		proto.RouteExpired,
	} {
		s.Annotations[proto.AnnotationRouteState] = string(state)
		require.Equal(t, string(state), read(s).state.String())
	}
}

func TestAddressesThatAreBelieved(t *testing.T) {
	for s, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "192.168.3.4": "192.168.3.4", "fd00::1": "fd00::1", "2001:db8::1": "2001:db8::1",
		"::ffff:10.0.0.1": "10.0.0.1",
		"127.0.0.1":       "", "::1": "", "::ffff:127.0.0.1": "", "127.8.9.10": "",
		"0.0.0.0": "", "::": "", "169.254.169.254": "", "fe80::1": "", "::ffff:169.254.169.254": "",
		"224.0.0.1": "", "ff02::1": "", "255.255.255.255": "",
		"fd00::1%eth0": "", "10.0.0.1:80": "", "10.0.0": "", "010.0.0.1": "", "host.example.com": "", "": "",
	} {
		a, ok := believable(s, false)
		assert.Equal(t, want != "", ok, s)
		if ok {
			assert.Equal(t, addr(want), a, s)
		}
	}
	for s, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "::ffff:127.0.0.1": true, "169.254.169.254": false, "0.0.0.0": false, "10.0.0.1": true,
	} {
		_, ok := believable(s, true)
		assert.Equal(t, want, ok, s)
	}
}

func TestBadEndpointsDoNotStopTheOthers(t *testing.T) {
	s := slice("s1", "u1", endpoint("169.254.169.254", "p1"), endpoint("10.0.0.2", "p2"), discoveryv1.Endpoint{})
	s.Ports = nil
	p, invalid := fromSlice(s, false)
	require.Equal(t, 2, invalid)
	require.Len(t, p.endpoints, 1)
	require.Equal(t, addr("10.0.0.2"), p.endpoints[0].Addr)

	names := slice("s1", "u1", endpoint("pod.example.com", "p1"))
	names.AddressType = discoveryv1.AddressTypeFQDN
	p, invalid = fromSlice(names, false)
	require.Equal(t, 1, invalid)
	require.Empty(t, p.endpoints)
}

// merged returns the addresses of the record that the slices make, whatever their order.
func merged(t *testing.T, uid string, slices ...*discoveryv1.EndpointSlice) []route.Address {
	t.Helper()
	var parts []*part
	for _, s := range slices {
		parts = append(parts, read(s))
	}
	first, ok := merge(parts, uid)
	require.True(t, ok)
	for range 10 {
		rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		again, _ := merge(parts, uid)
		require.Equal(t, first, again)
	}
	return first.Endpoints
}

func conditions(e discoveryv1.Endpoint, ready, serving, terminating bool) discoveryv1.Endpoint {
	e.Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
	return e
}

func named(s *discoveryv1.EndpointSlice, name, version string) *discoveryv1.EndpointSlice {
	s.Name, s.ResourceVersion = name, version
	return s
}

func TestMergeDuplicates(t *testing.T) {
	e := endpoint("10.0.0.1", "p1")
	for name, c := range map[string]struct {
		a, b discoveryv1.Endpoint
		want route.Condition
	}{
		"the same twice":            {e, e, route.Ready},
		"terminating beats ready":   {e, conditions(e, false, true, true), route.Terminating},
		"not ready beats ready":     {e, conditions(e, false, false, false), route.NotReady},
		"not serving beats serving": {conditions(e, false, true, true), conditions(e, false, false, true), route.NotReady},
	} {
		for _, versions := range [][2]string{{"1", "2"}, {"2", "1"}} {
			got := merged(t, "u1", named(slice("s1", "u1", c.a), "x", versions[0]), named(slice("s1", "u1", c.b), "y", versions[1]))
			if assert.Len(t, got, 1, name) {
				assert.Equal(t, c.want, got[0].Condition, name)
			}
		}
		got := merged(t, "u1", slice("s1", "u1", c.a, c.b))
		if assert.Len(t, got, 1, name) {
			assert.Equal(t, c.want, got[0].Condition, name)
		}
	}
}

func TestMergeFamilies(t *testing.T) {
	v4 := func(ip, pod string) *discoveryv1.EndpointSlice { return native("s1", endpoint(ip, pod)) }
	v6 := func(ip, pod string) *discoveryv1.EndpointSlice {
		s := named(native("s1", endpoint(ip, pod)), "s1-v6", "3")
		s.AddressType = discoveryv1.AddressTypeIPv6
		return s
	}
	for name, c := range map[string]struct {
		slices []*discoveryv1.EndpointSlice
		want   []string
	}{
		"both of one pod":      {[]*discoveryv1.EndpointSlice{v4("10.0.0.1", "p1"), v6("fd00::1", "p1")}, []string{"10.0.0.1"}},
		"only IPv6":            {[]*discoveryv1.EndpointSlice{v6("fd00::1", "p1")}, []string{"fd00::1"}},
		"of two pods":          {[]*discoveryv1.EndpointSlice{v4("10.0.0.1", "p1"), v6("fd00::2", "p2")}, []string{"10.0.0.1", "fd00::2"}},
		"both, pod not known":  {[]*discoveryv1.EndpointSlice{v4("10.0.0.1", ""), v6("fd00::1", "")}, []string{"10.0.0.1"}},
		"IPv6 first and newer": {[]*discoveryv1.EndpointSlice{v6("fd00::1", "p1"), v4("10.0.0.1", "p1")}, []string{"10.0.0.1"}},
	} {
		var got []string
		for _, a := range merged(t, "", c.slices...) {
			got = append(got, a.Addr.String())
		}
		assert.Equal(t, c.want, got, name)
	}
}

func TestMergeTakesStateAndClaimFromTheYoungest(t *testing.T) {
	old, young := slice("s1", "u1"), named(slice("s1", "u1"), "s1-b", "1")
	old.Annotations[proto.AnnotationRouteState] = "Suspended"
	old.ResourceVersion = "9"
	young.CreationTimestamp = metav1.NewTime(time.Unix(2000, 0))
	young.Annotations[proto.AnnotationRouteClaim] = "c1"
	r, ok := merge([]*part{read(old), read(young)}, "u1")
	require.True(t, ok)
	require.Equal(t, route.StateRunning, r.State)
	require.Equal(t, "c1", r.Claim)
	require.EqualValues(t, 2000, r.Since)
}

func TestMergeDoesNotChangeParts(t *testing.T) {
	a, b := read(slice("s1", "u1", endpoint("10.0.0.2", "p2"))), read(named(slice("s1", "u1", endpoint("10.0.0.1", "p1")), "x", "5"))
	parts := []*part{a, b}
	_, _ = merge(parts, "u1")
	require.Equal(t, []*part{a, b}, parts)
	require.Len(t, a.endpoints, 1)
	require.Equal(t, addr("10.0.0.2"), a.endpoints[0].Addr)
}

func TestMergeOfNothing(t *testing.T) {
	_, ok := merge(nil, "")
	require.False(t, ok)
	_, ok = merge([]*part{read(native("s1"))}, "u1")
	require.False(t, ok, "once a Sandbox is known by its UID, only what names it counts")
}
