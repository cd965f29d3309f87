package reconcile

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// Reasons of the conditions of a Sandbox.
const (
	reasonNotSuspended       = "NotSuspended"
	reasonPodStateUnknown    = "PodStateUnknown"
	reasonPodTerminated      = "PodTerminated"
	reasonPodNotOwned        = "PodNotOwned"
	reasonPodTerminating     = "PodTerminating"
	reasonSchedulingUnknown  = "PodSchedulingUnknown"
	reasonPodSucceeded       = "PodSucceeded"
	reasonPodFailed          = "PodFailed"
	reasonMultiplePods       = "MultiplePods"
	reasonReconcilerError    = "ReconcilerError"
	reasonSandboxSuspended   = "SandboxSuspended"
	reasonDependenciesReady  = "DependenciesReady"
	reasonDependenciesNot    = "DependenciesNotReady"
	reasonSandboxExpired     = "SandboxExpired"
	messageSandboxExpired    = "Sandbox has expired"
	messageSandboxSuspended  = "Sandbox is suspended"
	messageSandboxSuspending = "Sandbox is suspending"
)

// children is what one pass found or made of a Sandbox's Pod and Service, and what went wrong.
type children struct {
	pod     *corev1.Pod // may belong to someone else
	podErr  error
	service *corev1.Service
	err     error // all errors of the pass, podErr included unless it is a multiplePodsError
}

// owned is the Pod if it belongs to sb, else nil.
func (c children) owned(sb *agents.Sandbox) *corev1.Pod {
	if c.pod != nil && controlledBy(c.pod, sb.UID) {
		return c.pod
	}
	return nil
}

// sandboxStatus returns the status of sb that follows from its children.
func sandboxStatus(sb *agents.Sandbox, c children, clusterDomain string, now time.Time) agents.SandboxStatus {
	status := *sb.Status.DeepCopy()
	owned := c.owned(sb)
	status.PodIPs, status.NodeName = nil, ""
	if c.pod != nil {
		status.LabelSelector = proto.LabelSandboxNameHash + "=" + proto.NameHash(sb.Name)
	}
	if owned != nil {
		status.NodeName = owned.Spec.NodeName
		for _, ip := range owned.Status.PodIPs {
			status.PodIPs = append(status.PodIPs, ip.IP)
		}
	}
	if !isMultiplePods(c.podErr) { // else nobody looked for the Service
		status.Service, status.ServiceFQDN = "", ""
		if c.service != nil {
			status.Service = c.service.Name
			status.ServiceFQDN = c.service.Name + "." + c.service.Namespace + ".svc." + clusterDomain
		}
	}

	set := conditionSetter(sb, &status, now)
	set(suspendedCondition(sb, c, owned))
	if condition, ok := podScheduledCondition(c, owned); ok {
		set(condition)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, string(agents.ConditionPodScheduled))
	}
	set(readyCondition(sb, c))
	if condition, ok := finishedCondition(owned); ok {
		set(condition)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, string(agents.ConditionFinished))
	}
	return status
}

// expiredStatus returns the status of sb in the pass that finds it expired, before anything is torn down.
func expiredStatus(sb *agents.Sandbox, status agents.SandboxStatus, now time.Time) agents.SandboxStatus {
	status = *status.DeepCopy()
	conditionSetter(sb, &status, now)(condition(agents.ConditionReady, metav1.ConditionFalse, reasonSandboxExpired, messageSandboxExpired))
	meta.RemoveStatusCondition(&status.Conditions, string(agents.ConditionPodScheduled))
	return status
}

// conditionSetter returns a function that sets conditions of this generation. The transition time of a condition moves
// only with its status.
func conditionSetter(sb *agents.Sandbox, status *agents.SandboxStatus, now time.Time) func(metav1.Condition) {
	return func(c metav1.Condition) {
		c.ObservedGeneration = sb.Generation
		c.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
}

func condition(kind agents.ConditionType, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: status, Reason: reason, Message: message}
}

func suspendedCondition(sb *agents.Sandbox, c children, owned *corev1.Pod) metav1.Condition {
	status, reason, message := metav1.ConditionFalse, reasonNotSuspended, "Sandbox is not suspended"
	if sb.Spec.OperatingMode == agents.OperatingModeSuspended {
		switch {
		case c.pod == nil && c.podErr != nil:
			status, reason = metav1.ConditionUnknown, reasonPodStateUnknown
			message = "Pod state is unknown. Sandbox suspension cannot be confirmed"
		case c.pod == nil:
			status, reason, message = metav1.ConditionTrue, reasonPodTerminated, "Pod has been terminated. Sandbox is suspended"
		case owned == nil:
			reason, message = reasonPodNotOwned, "Refused to delete pod because it is not owned by this sandbox"
		default:
			reason, message = reasonPodTerminating, "Pod is terminating. Sandbox is suspending"
		}
	}
	return condition(agents.ConditionSuspended, status, reason, message)
}

// podScheduledCondition mirrors the Pod's condition; false means that the Sandbox has none.
func podScheduledCondition(c children, owned *corev1.Pod) (metav1.Condition, bool) {
	unknown := func(message string) (metav1.Condition, bool) {
		return condition(agents.ConditionPodScheduled, metav1.ConditionUnknown, reasonSchedulingUnknown, message), true
	}
	switch {
	case c.pod == nil && c.podErr != nil:
		return unknown("Pod state is unknown. Pod scheduling cannot be determined")
	case owned == nil:
		return metav1.Condition{}, false
	}
	scheduled := podCondition(owned, corev1.PodScheduled)
	if scheduled == nil {
		return unknown("Pod has not reported a PodScheduled condition yet")
	}
	reason := scheduled.Reason
	if reason == "" {
		reason = reasonSchedulingUnknown
		if scheduled.Status == corev1.ConditionTrue {
			reason = "PodScheduled"
		}
	}
	return condition(agents.ConditionPodScheduled, metav1.ConditionStatus(scheduled.Status), reason, scheduled.Message), true
}

// finishedCondition is there only with a Pod that ended.
func finishedCondition(owned *corev1.Pod) (metav1.Condition, bool) {
	if owned == nil || !podFinished(owned) {
		return metav1.Condition{}, false
	}
	reason, message := finishedReason(owned)
	return condition(agents.ConditionFinished, metav1.ConditionTrue, reason, message), true
}

func finishedReason(pod *corev1.Pod) (reason, message string) {
	if pod.Status.Phase == corev1.PodSucceeded {
		return reasonPodSucceeded, "Pod completed successfully"
	}
	return reasonPodFailed, "Pod failed"
}

func readyCondition(sb *agents.Sandbox, c children) metav1.Condition {
	ready := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return condition(agents.ConditionReady, status, reason, message)
	}
	switch {
	case isMultiplePods(c.podErr):
		return ready(metav1.ConditionFalse, reasonMultiplePods, c.podErr.Error())
	case c.err != nil:
		return ready(metav1.ConditionFalse, reasonReconcilerError, "Error seen: "+c.err.Error())
	case sb.Spec.OperatingMode == agents.OperatingModeSuspended && c.pod != nil:
		return ready(metav1.ConditionFalse, reasonSandboxSuspended, messageSandboxSuspending)
	case sb.Spec.OperatingMode == agents.OperatingModeSuspended:
		return ready(metav1.ConditionFalse, reasonSandboxSuspended, messageSandboxSuspended)
	case c.pod != nil && podFinished(c.pod):
		reason, message := finishedReason(c.pod)
		return ready(metav1.ConditionFalse, reason, message)
	}

	status, reason := metav1.ConditionTrue, reasonDependenciesReady
	message := []string{podMessage(c.pod)}
	if c.pod == nil || !podReady(c.pod) {
		status, reason = metav1.ConditionFalse, reasonDependenciesNot
	}
	switch {
	case c.service != nil:
		message = append(message, "Service Exists")
	case sb.Spec.Service != nil && *sb.Spec.Service:
		message = append(message, "Service does not exist")
		status, reason = metav1.ConditionFalse, reasonDependenciesNot
	}
	return ready(status, reason, strings.Join(message, "; "))
}

func podMessage(pod *corev1.Pod) string {
	switch {
	case pod == nil:
		return "Pod does not exist"
	case pod.Status.Phase != corev1.PodRunning:
		return "Pod exists with phase: " + string(pod.Status.Phase)
	case !podConditionTrue(pod, corev1.PodReady):
		return "Pod is Running but not Ready"
	case len(pod.Status.PodIPs) == 0:
		return "Pod is Ready but has no podIPs yet"
	}
	return "Pod is Ready"
}

// How long a status may lag that tells nothing but the progress of a starting Pod, or a new generation. A Sandbox carries a
// whole PodSpec and is the dearest object to write, and the write that counts, Ready, follows shortly. Nobody waits for a
// member of a pool in particular, and while a pool fills the API server has better things to do.
const (
	statusDelay       = 2 * time.Second
	memberStatusDelay = 10 * time.Second
)

// writeStatus brings the status to want. This controller is its only writer, so there is no lock.
func (r *sandboxReconciler) writeStatus(ctx context.Context, p *pass, want agents.SandboxStatus) error {
	have := &p.sb.Status
	changed := !equality.Semantic.DeepEqual(*have, want) && !onlyNodeName(have, &want)
	if changed && canWait(have, &want) {
		delay := statusDelay
		if unclaimedMember(p.sb) {
			delay = memberStatusDelay
		}
		if r.wait(p, p.sb, delay) {
			return nil
		}
	}
	r.due.Delete(p.sb.UID)
	if !changed {
		return nil
	}
	_, err := patch(ctx, r.client, p.sb, unlocked, func(sb *agents.Sandbox) { sb.Status = want })
	return client.IgnoreNotFound(err)
}

// onlyNodeName reports whether nothing but the node changed on a Sandbox that is not Ready. The name rides along with the
// next write.
func onlyNodeName(have, want *agents.SandboxStatus) bool {
	same := *want
	same.NodeName = have.NodeName
	return equality.Semantic.DeepEqual(*have, same) && !meta.IsStatusConditionTrue(want.Conditions, string(agents.ConditionReady))
}

// canWait reports whether the step from one status to the next, which differ, may be left out if another follows soon:
// nothing but the generation of the conditions is new, or the Pod of a Sandbox that was not Ready is on its way.
func canWait(have, want *agents.SandboxStatus) bool {
	if readyReason(want) == reasonDependenciesNot {
		before := readyReason(have)
		return (before == "" || before == reasonDependenciesNot) &&
			(have.Service == "" || have.Service == want.Service) &&
			(len(have.PodIPs) == 0 || slices.Equal(have.PodIPs, want.PodIPs)) // what is no longer true is told at once
	}
	same := *want.DeepCopy()
	for i := range min(len(same.Conditions), len(have.Conditions)) {
		same.Conditions[i].ObservedGeneration = have.Conditions[i].ObservedGeneration
	}
	return equality.Semantic.DeepEqual(*have, same)
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
