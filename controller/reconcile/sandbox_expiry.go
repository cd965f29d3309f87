package reconcile

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

const (
	// soon brings a Sandbox or a claim that was just marked expired back for the pass that tears it down.
	soon = time.Millisecond
	// minExpiryWait keeps a Sandbox that is about to expire from coming back again and again.
	minExpiryWait = 2 * time.Second
)

// expired reports whether sb has reached its shutdown time.
func expired(sb *agents.Sandbox, now time.Time) bool {
	return sb.Spec.ShutdownTime != nil && !now.Before(sb.Spec.ShutdownTime.Time)
}

// markedExpired reports whether the status of sb already tells that it expired.
func markedExpired(sb *agents.Sandbox) bool {
	return readyReason(&sb.Status) == reasonSandboxExpired
}

// readyReason is the reason of the Ready condition, "" when there is none.
func readyReason(status *agents.SandboxStatus) string {
	if ready := meta.FindStatusCondition(status.Conditions, string(agents.ConditionReady)); ready != nil {
		return ready.Reason
	}
	return ""
}

// expire handles a Sandbox past its shutdown time in two passes. The first only says so, since nothing may be torn down
// that still looks alive; the second tears down.
func (r *sandboxReconciler) expire(ctx context.Context, p *pass) (ctrl.Result, error) {
	if !markedExpired(p.sb) {
		return ctrl.Result{RequeueAfter: soon}, r.writeStatus(ctx, p, expiredStatus(p.sb, p.sb.Status, r.now()))
	}
	if err := r.tearDown(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	if policy := p.sb.Spec.ShutdownPolicy; policy != nil && *policy == agents.ShutdownPolicyDelete {
		return ctrl.Result{}, client.IgnoreNotFound(r.client.Delete(ctx, p.sb, client.Preconditions{UID: &p.sb.UID}))
	}
	return ctrl.Result{}, r.writeStatus(ctx, p, agents.SandboxStatus{Conditions: p.sb.Status.Conditions})
}

// tearDown closes the route, then deletes the Pod and the Service that the Sandbox owns. PersistentVolumeClaims stay.
func (r *sandboxReconciler) tearDown(ctx context.Context, p *pass) error {
	if err := r.routes.publish(ctx, p.sb, nil); err != nil {
		return err
	}
	pod, err := r.getPod(ctx, p, client.ObjectKey{Namespace: p.sb.Namespace, Name: podNameOf(p.sb)})
	if err == nil && pod != nil && controlledBy(pod, p.sb.UID) && pod.DeletionTimestamp.IsZero() {
		err = r.deletePod(ctx, pod)
	}
	svc, found, svcErr := r.services.get(ctx, r.client, client.ObjectKeyFromObject(p.sb), &corev1.Service{})
	if found && controlledBy(svc, p.sb.UID) && svc.DeletionTimestamp.IsZero() {
		svcErr = client.IgnoreNotFound(r.client.Delete(ctx, svc, client.Preconditions{UID: &svc.UID}))
	}
	return errors.Join(err, svcErr)
}
