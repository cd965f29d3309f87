package reconcile

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// How long a status may lag that tells nothing but the progress of a starting Pod, or a new generation. A Sandbox carries a
// whole PodSpec and is the dearest object to write, and the write that counts, Ready, follows shortly. Nobody waits for a
// member of a pool in particular, and while a pool fills the API server has better things to do.
const (
	statusDelay       = 2 * time.Second
	memberStatusDelay = 10 * time.Second
)

// patchSandbox makes the change and continues the pass with the Sandbox as the server has it then.
func (r *sandboxReconciler) patchSandbox(ctx context.Context, p *pass, change metaChange) error {
	fresh, err := applyPatch(ctx, r.client, p.sb, change.patch())
	if err != nil {
		return err
	}
	r.sandboxes.record(fresh)
	p.sb = fresh
	return nil
}

// writeStatus brings the status to want. This controller is its only writer, so there is no lock.
func (r *sandboxReconciler) writeStatus(ctx context.Context, p *pass, want agents.SandboxStatus) error {
	key := client.ObjectKeyFromObject(p.sb)
	body := statusChange(&p.sb.Status, &want)
	if len(body) == 0 || onlyNodeName(body, &want) {
		r.lateStatus.done(key)
		return nil
	}
	if canWait(&p.sb.Status, &want, body) {
		delay := statusDelay
		if unclaimedMember(p.sb) {
			delay = memberStatusDelay
		}
		if wait := r.lateStatus.wait(key, delay, r.now()); wait > 0 {
			p.requeueWithin(wait)
			return nil
		}
	}
	r.lateStatus.done(key)
	fresh, err := applyPatch(ctx, r.client.Status(), p.sb, mergePatch(fields{"status": body}))
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	r.sandboxes.record(fresh)
	return nil
}

// statusChange returns the fields that differ, for a merge patch.
func statusChange(have, want *agents.SandboxStatus) fields {
	body := fields{}
	text := func(key, have, want string) {
		if have == want {
			return
		}
		body[key] = want
		if want == "" {
			body[key] = nil
		}
	}
	text("service", have.Service, want.Service)
	text("serviceFQDN", have.ServiceFQDN, want.ServiceFQDN)
	text("selector", have.LabelSelector, want.LabelSelector)
	text("nodeName", have.NodeName, want.NodeName)
	if !slices.Equal(have.PodIPs, want.PodIPs) {
		body["podIPs"] = want.PodIPs
	}
	if !equality.Semantic.DeepEqual(have.Conditions, want.Conditions) {
		body["conditions"] = want.Conditions
	}
	return body
}

// onlyNodeName reports whether nothing but the node changed on a Sandbox that is not Ready. The name rides along with the
// next write.
func onlyNodeName(body fields, want *agents.SandboxStatus) bool {
	_, ok := body["nodeName"]
	return ok && len(body) == 1 && !meta.IsStatusConditionTrue(want.Conditions, string(agents.ConditionReady))
}

// canWait reports whether the step from one status to the next, which differ in body, may be left out if another follows
// soon: nothing but the generation of the conditions is new, or the Pod of a Sandbox that was not Ready is on its way.
func canWait(have, want *agents.SandboxStatus, body fields) bool {
	if readyReason(want) == reasonDependenciesNot {
		before := readyReason(have)
		return (before == "" || before == reasonDependenciesNot) &&
			(have.Service == "" || have.Service == want.Service) &&
			(len(have.PodIPs) == 0 || slices.Equal(have.PodIPs, want.PodIPs)) // what is no longer true is told at once
	}
	_, ok := body["conditions"]
	return ok && len(body) == 1 && slices.EqualFunc(have.Conditions, want.Conditions, func(a, b metav1.Condition) bool {
		a.ObservedGeneration, b.ObservedGeneration = 0, 0
		return equality.Semantic.DeepEqual(a, b)
	})
}
