package reconcile

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// routeSuffix ends the name of a published slice. The slices of a Service end in five characters without vowels, so the
// two never meet.
const routeSuffix = "-route"

// maxObjectName is the length of the longest DNS subdomain, in bytes (RFC 1123).
const maxObjectName = 253

// routeName is the name of the EndpointSlice of a Sandbox.
func routeName(sandbox string) string {
	if len(sandbox)+len(routeSuffix) <= maxObjectName {
		return sandbox + routeSuffix
	}
	hash := "-" + proto.NameHash(sandbox)
	return sandbox[:maxObjectName-len(routeSuffix)-len(hash)] + hash + routeSuffix
}

// buildRoute returns the EndpointSlice that leads to sb, nil when nothing may lead there. pod is the pod that sb owns,
// nil when there is none; zone is where it runs; expired says that sb passed its shutdown time. current is the slice published now, nil when there is none: an endpoint
// is published when its pod is first Ready and then stays as long as the pod lives, so that a failing readiness probe
// stops new requests without cutting those in flight.
func buildRoute(
	sb *agents.Sandbox, pod *corev1.Pod, zone string, expired bool, current *discoveryv1.EndpointSlice,
) *discoveryv1.EndpointSlice {
	if unclaimedMember(sb) {
		return nil
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:      routeName(sb.Name),
			Namespace: sb.Namespace,
			Labels: map[string]string{
				discoveryv1.LabelManagedBy: proto.SliceManagedBy,
				proto.LabelSandboxNameHash: proto.NameHash(sb.Name),
			},
			Annotations:     map[string]string{proto.AnnotationRouteState: string(routeState(sb, pod, expired))},
			OwnerReferences: []metav1.OwnerReference{newControllerRef(sb, sandboxGVK)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{},
		Ports:       routePorts(&sb.Spec.PodTemplate.Spec),
	}
	if claim := claimOf(sb); claim != "" {
		slice.Annotations[proto.AnnotationRouteClaim] = claim
	}
	if current != nil {
		slice.AddressType = current.AddressType // immutable, so only an endpoint may ask for another
	}
	if expired || pod == nil || podFinished(pod) || !podReady(pod) && !publishes(current, pod) {
		return slice
	}
	if ip, ok := podAddress(pod); ok {
		slice.AddressType = discoveryv1.AddressTypeIPv6
		if ip.Is4() {
			slice.AddressType = discoveryv1.AddressTypeIPv4
		}
		slice.Endpoints = append(slice.Endpoints, routeEndpoint(pod, ip, zone))
	}
	return slice
}

func routeState(sb *agents.Sandbox, pod *corev1.Pod, expired bool) proto.RouteState {
	switch {
	case expired:
		return proto.RouteExpired
	case sb.Spec.OperatingMode == agents.OperatingModeSuspended && pod == nil:
		return proto.RouteSuspended
	case sb.Spec.OperatingMode == agents.OperatingModeSuspended:
		return proto.RouteSuspending
	case pod == nil:
		return proto.RouteStarting
	case podFinished(pod):
		return proto.RouteFinished
	case podReady(pod) && pod.DeletionTimestamp.IsZero():
		return proto.RouteRunning
	}
	return proto.RouteStarting
}

func routeEndpoint(pod *corev1.Pod, ip netip.Addr, zone string) discoveryv1.Endpoint {
	ready, terminating := podReady(pod), !pod.DeletionTimestamp.IsZero()
	e := discoveryv1.Endpoint{
		Addresses: []string{ip.String()},
		Conditions: discoveryv1.EndpointConditions{
			Ready:       new(ready && !terminating),
			Serving:     new(ready),
			Terminating: new(terminating),
		},
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	if pod.Spec.NodeName != "" {
		e.NodeName = new(pod.Spec.NodeName)
	}
	if zone != "" {
		e.Zone = new(zone)
	}
	return e
}

// routePorts lists the ports that the containers declare. None is fine: the caller of the router names the port.
func routePorts(spec *corev1.PodSpec) []discoveryv1.EndpointPort {
	ports := []discoveryv1.EndpointPort{}
	for _, p := range containerPorts(spec) {
		ports = append(ports, discoveryv1.EndpointPort{Name: new(p.Name), Protocol: new(p.Protocol), Port: new(p.Port)})
	}
	return ports
}

// publishes reports whether slice has an endpoint of this very pod.
func publishes(slice *discoveryv1.EndpointSlice, pod *corev1.Pod) bool {
	return slice != nil && slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
		return e.TargetRef != nil && e.TargetRef.UID == pod.UID
	})
}

// podAddress returns the pod's first IPv4 address, else its first IPv6 one.
func podAddress(pod *corev1.Pod) (netip.Addr, bool) {
	var first netip.Addr
	for _, ip := range pod.Status.PodIPs {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil {
			continue
		}
		if addr = addr.Unmap(); addr.Is4() {
			return addr, true
		}
		if !first.IsValid() {
			first = addr
		}
	}
	return first, first.IsValid()
}
