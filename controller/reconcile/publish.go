package reconcile

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// RoutePublisher writes the EndpointSlices that the router reads. The Sandbox and the claim reconciler share one, and may
// both publish the same Sandbox: the second finds what the first wrote.
type RoutePublisher struct {
	client client.Client
	live   client.Reader
	now    func() time.Time

	slices *ownWrites[*discoveryv1.EndpointSlice]
	locks  [routeLocks]sync.Mutex // by hash of the slice's key
	seed   maphash.Seed
}

// routeLocks is far above the number of workers, so that two Sandboxes rarely wait for each other.
const routeLocks = 4096

func newRoutePublisher(c client.Client, live client.Reader, now func() time.Time) *RoutePublisher {
	return &RoutePublisher{
		client: c, live: live, now: now,
		slices: newOwnWrites[*discoveryv1.EndpointSlice](now),
		seed:   maphash.MakeSeed(),
	}
}

// Publish brings the route of sb in line with sb and with its pod as the cache shows it. It is idempotent, and writes only
// what differs. The claim reconciler calls it between the adoption of sb and the claim's Ready=True, with sb as the
// adoption left it; an error means that the route may not be there, so the claim must not turn Ready.
func (p *RoutePublisher) Publish(ctx context.Context, sb *agents.Sandbox) error {
	pod := &corev1.Pod{}
	err := p.client.Get(ctx, types.NamespacedName{Namespace: sb.Namespace, Name: podNameOf(sb)}, pod, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		pod = nil
	case err != nil:
		return fmt.Errorf("publish route: %w", err)
	case !controlledBy(pod, sb.UID):
		pod = nil
	}
	if isReady(sb) && (pod == nil || !podReady(pod)) {
		return fmt.Errorf("publish route: the pod of Sandbox %q is no longer ready", sb.Name)
	}
	return p.publish(ctx, sb, pod)
}

// publish is Publish for a caller that knows the pod which sb owns, nil when there is none.
func (p *RoutePublisher) publish(ctx context.Context, sb *agents.Sandbox, pod *corev1.Pod) error {
	key := types.NamespacedName{Namespace: sb.Namespace, Name: routeName(sb.Name)}
	lock := &p.locks[maphash.String(p.seed, key.Namespace+"/"+key.Name)%routeLocks]
	lock.Lock()
	defer lock.Unlock()

	current, found, err := p.slices.get(ctx, p.client, key, &discoveryv1.EndpointSlice{})
	if !found {
		current = nil
	}
	if err == nil {
		err = p.write(ctx, sb, pod, current)
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) { // the cache is behind somebody else's write
		current = &discoveryv1.EndpointSlice{}
		if err = p.live.Get(ctx, key, current); apierrors.IsNotFound(err) {
			current, err = nil, nil
		}
		if err == nil {
			err = p.write(ctx, sb, pod, current)
		}
	}
	if err != nil {
		return fmt.Errorf("publish route: %w", err)
	}
	return nil
}

// write turns the slice from current, nil when there is none, into what sb needs.
func (p *RoutePublisher) write(ctx context.Context, sb *agents.Sandbox, pod *corev1.Pod, current *discoveryv1.EndpointSlice) error {
	if current != nil && !controlledBy(current, sb.UID) {
		if unclaimedMember(sb) {
			return nil
		}
		if !controllerKind(current, sandboxGVK.Group, sandboxGVK.Kind) {
			return fmt.Errorf("EndpointSlice %q does not belong to Sandbox %q", current.Name, sb.Name)
		}
		// An earlier Sandbox had this name, and the garbage collector has not come by yet.
		if err := p.remove(ctx, current); err != nil {
			return err
		}
		current = nil
	}
	desired := buildRoute(sb, pod, p.zone(ctx, pod), expired(sb, p.now()), current)
	switch {
	case desired == nil:
		// A member that is not published, and was not unless someone gave it a pool's label later. A route with a claim was
		// published by an adoption that this view of sb does not show yet.
		if current == nil || current.Annotations[proto.AnnotationRouteClaim] != "" {
			return nil
		}
		return p.remove(ctx, current)
	case current != nil && current.AddressType == desired.AddressType:
		return p.update(ctx, current, desired)
	case current != nil:
		if err := p.remove(ctx, current); err != nil {
			return err
		}
	}
	if err := p.client.Create(ctx, desired); err != nil {
		return err
	}
	p.slices.record(desired)
	return nil
}

func (p *RoutePublisher) update(ctx context.Context, current, desired *discoveryv1.EndpointSlice) error {
	patch := routePatch(current, desired)
	if patch == nil {
		return nil
	}
	fresh, err := applyPatch(ctx, p.client, current, patch)
	if err != nil {
		return err
	}
	p.slices.record(fresh)
	return nil
}

func (p *RoutePublisher) remove(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	p.slices.forget(client.ObjectKeyFromObject(slice))
	return client.IgnoreNotFound(p.client.Delete(ctx, slice, client.Preconditions{UID: &slice.UID}))
}

// routePatch is the merge patch from one slice to another of the same Sandbox, nil when they agree.
func routePatch(current, desired *discoveryv1.EndpointSlice) client.Patch {
	var change metaChange
	for key, value := range desired.Labels {
		if current.Labels[key] != value {
			change.setLabel(key, value)
		}
	}
	for _, key := range []string{proto.AnnotationRouteState, proto.AnnotationRouteClaim} {
		if value := desired.Annotations[key]; value == "" && current.Annotations[key] != "" {
			change.deleteAnnotation(key)
		} else if value != current.Annotations[key] {
			change.setAnnotation(key, value)
		}
	}
	body := fields{}
	if !change.empty() {
		body["metadata"] = change.body()
	}
	if !equality.Semantic.DeepEqual(current.Endpoints, desired.Endpoints) {
		body["endpoints"] = desired.Endpoints
	}
	if !equality.Semantic.DeepEqual(current.Ports, desired.Ports) {
		body["ports"] = desired.Ports
	}
	if len(body) == 0 {
		return nil
	}
	return mergePatch(body)
}

// zone is where the pod runs. Newer API servers copy the zone to the pod when it is bound; else the node tells.
func (p *RoutePublisher) zone(ctx context.Context, pod *corev1.Pod) string {
	if pod == nil || pod.Spec.NodeName == "" {
		return ""
	}
	if zone := pod.Labels[corev1.LabelTopologyZone]; zone != "" {
		return zone
	}
	node := nodeMetadata()
	if err := p.client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node, client.UnsafeDisableDeepCopy); err != nil {
		return "" // a route without a zone works; the node may be gone already
	}
	return node.Labels[corev1.LabelTopologyZone]
}

// nodeMetadata is the form in which Nodes are cached: without spec and status.
func nodeMetadata() *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return node
}
