package reconcile

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// multiplePodsError says that a Sandbox controls more than one Pod. The pass then touches none of them.
type multiplePodsError int

func (n multiplePodsError) Error() string {
	return fmt.Sprintf("multiple Pods (%d) are controlled by this Sandbox; refusing to choose or create a Pod", int(n))
}

func isMultiplePods(err error) bool {
	var multiple multiplePodsError
	return errors.As(err, &multiple)
}

// reconcilePod brings the Pod in line with the Sandbox and returns the Pod as it is afterwards, nil when there is none.
// A returned Pod may belong to someone else. It keeps the annotation pod-name of p.sb true.
func (r *sandboxReconciler) reconcilePod(ctx context.Context, p *pass) (*corev1.Pod, error) {
	ctx, span := tracer.Start(ctx, "reconcilePod")
	defer span.End()
	owned, err := r.ownedPods(ctx, p.sb)
	if err != nil {
		return nil, err
	}
	pod, err := r.getPod(ctx, p, podNameOf(p.sb))
	if err != nil {
		return nil, err
	}
	if pod != nil && controlledBy(pod, p.sb.UID) {
		owned[pod.UID] = pod // its label may be missing still
	}
	if len(owned) > 1 {
		return nil, multiplePodsError(len(owned))
	}
	for uid, survivor := range owned { // the owner's UID beats the annotation
		if pod == nil || pod.UID != uid {
			if err := r.setPodName(ctx, p, survivor.Name); err != nil {
				return survivor, err
			}
			pod = survivor
		}
	}
	switch {
	case p.sb.Spec.OperatingMode == agents.OperatingModeSuspended:
		return r.suspendPod(ctx, p, pod)
	case pod != nil:
		return r.followPod(ctx, p, pod)
	}
	return r.createPod(ctx, p)
}

// suspendPod removes the Pod that the Sandbox owns. The route says so before the Pod goes, and the annotation stays until
// the Pod is gone.
func (r *sandboxReconciler) suspendPod(ctx context.Context, p *pass, pod *corev1.Pod) (*corev1.Pod, error) {
	if pod == nil || !controlledBy(pod, p.sb.UID) {
		return pod, r.setPodName(ctx, p, "")
	}
	if !pod.DeletionTimestamp.IsZero() {
		return pod, nil
	}
	if err := r.routes.publish(ctx, p.sb, pod); err != nil {
		return pod, err
	}
	return pod, r.client.remove(ctx, pod)
}

func (r *sandboxReconciler) createPod(ctx context.Context, p *pass) (*corev1.Pod, error) {
	if name := p.sb.Annotations[proto.AnnotationPodName]; name != "" && name != p.sb.Name {
		if err := r.setPodName(ctx, p, ""); err != nil {
			return nil, err
		}
	}
	pod := buildPod(p.sb)
	existed, err := r.client.createOrGet(ctx, pod)
	switch {
	case err != nil:
		return nil, err
	case existed:
		return r.followPod(ctx, p, pod)
	}
	return pod, r.setPodName(ctx, p, pod.Name)
}

// followPod adopts an existing Pod if that is allowed, and copies metadata to it. It never changes its spec.
func (r *sandboxReconciler) followPod(ctx context.Context, p *pass, pod *corev1.Pod) (*corev1.Pod, error) {
	adopt, err := mayControl(p.sb, "pod", pod)
	if err != nil {
		if controllerOf(pod) != nil {
			err = errors.Join(r.setPodName(ctx, p, ""), err)
		}
		return pod, err
	}
	want := pod.DeepCopy()
	syncPodMetadata(p.sb, want)
	if adopt {
		want.OwnerReferences = adoptedRefs(p.sb, pod)
	} else if r.writeBehind > 0 && len(diff(pod, want)) > 0 && r.wait(p, pod, r.writeBehind) {
		want = pod
	}
	fresh, err := write(ctx, r.client, pod, want, unlocked)
	if err != nil {
		return pod, err
	}
	if want != pod {
		r.due.Delete(pod.UID)
	}
	if p.sb.Annotations[proto.AnnotationPodName] == "" {
		err = r.setPodName(ctx, p, fresh.Name)
	}
	return fresh, err
}

// setPodName writes the annotation pod-name of the Sandbox, or removes it when name is "".
func (r *sandboxReconciler) setPodName(ctx context.Context, p *pass, name string) error {
	return r.annotate(ctx, p, proto.AnnotationPodName, name)
}

// getPod reads one Pod, nil when there is none.
func (r *sandboxReconciler) getPod(ctx context.Context, p *pass, name string) (*corev1.Pod, error) {
	pod, err := get[corev1.Pod](ctx, r.client, client.ObjectKey{Namespace: p.sb.Namespace, Name: name})
	if pod != nil && r.client.pending(pod) {
		p.requeueWithin(ownWriteTTL) // the event of the write should come long before
	}
	return pod, err
}

// ownedPods returns the Pods that the Sandbox controls and that carry its label, by UID.
func (r *sandboxReconciler) ownedPods(ctx context.Context, sb *agents.Sandbox) (map[types.UID]*corev1.Pod, error) {
	pods, err := list[*corev1.Pod](ctx, r.client, &corev1.PodList{}, sb.Namespace, indexNameHash, proto.NameHash(sb.Name))
	owned := map[types.UID]*corev1.Pod{}
	for _, pod := range pods {
		if controlledBy(pod, sb.UID) {
			owned[pod.UID] = pod
		}
	}
	return owned, err
}
