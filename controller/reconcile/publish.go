package reconcile

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/controller/priority"
	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// routePublisher writes the EndpointSlices that the router reads. The Sandbox and the claim reconciler share one, and may
// both publish the same Sandbox: the second finds what the first wrote.
type routePublisher struct {
	client *store
	now    func() time.Time

	locks [routeLocks]sync.Mutex // by hash of the slice's key
	seed  maphash.Seed
}

// routeLocks is far above the number of workers, so that two Sandboxes rarely wait for each other.
const routeLocks = 4096

func newRoutePublisher(c *store, now func() time.Time) *routePublisher {
	return &routePublisher{client: c, now: now, seed: maphash.MakeSeed()}
}

// Publish brings the route of sb in line with sb and with its pod as the cache shows it. It is idempotent, and writes only
// what differs. The claim reconciler calls it between the adoption of sb and the claim's Ready=True, with sb as the
// adoption left it; an error means that the route may not be there, so the claim must not turn Ready.
func (p *routePublisher) Publish(ctx context.Context, sb *agents.Sandbox) error {
	pod, err := get[corev1.Pod](ctx, p.client, client.ObjectKey{Namespace: sb.Namespace, Name: podNameOf(sb)})
	if err != nil {
		return fmt.Errorf("publish route: %w", err)
	}
	if pod != nil && !controlledBy(pod, sb.UID) {
		pod = nil
	}
	if isReady(sb) && (pod == nil || !podReady(pod)) {
		return fmt.Errorf("publish route: the pod of Sandbox %q is no longer ready", sb.Name)
	}
	return p.publish(ctx, sb, pod)
}

// publish is Publish for a caller that knows the pod which sb owns, nil when there is none.
func (p *routePublisher) publish(ctx context.Context, sb *agents.Sandbox, pod *corev1.Pod) error {
	key := client.ObjectKey{Namespace: sb.Namespace, Name: routeName(sb.Name)}
	lock := &p.locks[maphash.String(p.seed, key.String())%routeLocks]
	lock.Lock()
	defer lock.Unlock()
	ctx = priority.Foreground(ctx) // a claim may wait for the lock

	current, err := get[discoveryv1.EndpointSlice](ctx, p.client, key)
	if err == nil {
		err = p.write(ctx, sb, pod, current)
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) { // the cache is behind somebody else's write
		if current, err = get[discoveryv1.EndpointSlice](ctx, p.client.live, key); err == nil {
			err = p.write(ctx, sb, pod, current)
		}
	}
	if err != nil {
		return fmt.Errorf("publish route: %w", err)
	}
	return nil
}

// write turns the slice from current, nil when there is none, into what sb needs.
func (p *routePublisher) write(ctx context.Context, sb *agents.Sandbox, pod *corev1.Pod, current *discoveryv1.EndpointSlice) error {
	if current != nil && !controlledBy(current, sb.UID) {
		if unclaimedMember(sb) {
			return nil
		}
		if !controllerKind(current, sandboxGVK.Group, sandboxGVK.Kind) {
			return fmt.Errorf("EndpointSlice %q does not belong to Sandbox %q", current.Name, sb.Name)
		}
		// An earlier Sandbox had this name, and the garbage collector has not come by yet.
		if err := p.client.remove(ctx, current); err != nil {
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
		return p.client.remove(ctx, current)
	case current != nil && current.AddressType == desired.AddressType:
		return p.update(ctx, current, desired)
	case current != nil:
		if err := p.client.remove(ctx, current); err != nil {
			return err
		}
	}
	return p.client.Create(ctx, desired)
}

func (p *routePublisher) update(ctx context.Context, current, desired *discoveryv1.EndpointSlice) error {
	_, err := patch(ctx, p.client, current, unlocked, func(s *discoveryv1.EndpointSlice) {
		for key, value := range desired.Labels {
			metav1.SetMetaDataLabel(&s.ObjectMeta, key, value)
		}
		for _, key := range []string{proto.AnnotationRouteState, proto.AnnotationRouteClaim} {
			setOrDelete(&s.Annotations, key, desired.Annotations[key])
		}
		s.Endpoints, s.Ports = desired.Endpoints, desired.Ports
	})
	return err
}

// zone is where the pod runs. Newer API servers copy the zone to the pod when it is bound; else the node tells.
func (p *routePublisher) zone(ctx context.Context, pod *corev1.Pod) string {
	if pod == nil || pod.Spec.NodeName == "" {
		return ""
	}
	if zone := pod.Labels[corev1.LabelTopologyZone]; zone != "" {
		return zone
	}
	return nodeZone(ctx, p.client, pod.Spec.NodeName)
}

// nodeZone is the zone of a node, "" when it is not known: the node may be gone already, and a route without a zone works.
func nodeZone(ctx context.Context, c client.Reader, name string) string {
	node := nodeMetadata()
	if err := c.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return ""
	}
	return node.Labels[corev1.LabelTopologyZone]
}
