package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

const claimExpiredMessage = "Claim expired. Sandbox cleanup initiated."

// claimOutcome is what a pass found out about a claim.
type claimOutcome struct {
	sandbox *agents.Sandbox // nil when there is none, unless unseen or err says why it was not found
	unseen  bool            // the pass did not look for the Sandbox
	err     error
	expired bool
	foreign bool // expired, and the Sandbox of that name serves somebody else
}

// claimStatus is the status of a claim after a pass with this outcome.
func claimStatus(claim *ext.SandboxClaim, outcome claimOutcome, now time.Time) ext.SandboxClaimStatus {
	old := &claim.Status
	status := ext.SandboxClaimStatus{Sandbox: old.Sandbox}
	switch {
	case outcome.sandbox != nil:
		status.Sandbox = ext.ClaimedSandbox{Name: outcome.sandbox.Name, PodIPs: outcome.sandbox.Status.PodIPs}
	case outcome.err == nil && !outcome.unseen:
		// Only a proven absence clears the name: without it the next pass would look for another sandbox.
		status.Sandbox = ext.ClaimedSandbox{}
	}

	ready := claimReady(outcome)
	ready.Type = string(agents.ConditionReady)
	ready.ObservedGeneration = claim.Generation
	if ready.LastTransitionTime.IsZero() {
		ready.LastTransitionTime = metav1.NewTime(now)
		if was := meta.FindStatusCondition(old.Conditions, ready.Type); was != nil && was.Status == ready.Status {
			ready.LastTransitionTime = was.LastTransitionTime
		}
	}
	if finished := claimFinished(claim, outcome); finished != nil {
		status.Conditions = append(status.Conditions, *finished)
	}
	status.Conditions = append(status.Conditions, ready)
	for _, other := range old.Conditions {
		if other.Type != string(agents.ConditionReady) && other.Type != string(agents.ConditionFinished) {
			status.Conditions = append(status.Conditions, other)
		}
	}
	slices.SortFunc(status.Conditions, func(a, b metav1.Condition) int { return cmp.Compare(a.Type, b.Type) })
	return status
}

// claimReady is the Ready condition, without a transition time unless it is the Sandbox's.
func claimReady(outcome claimOutcome) metav1.Condition {
	notReady := func(reason, message string) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	if known := problemOf(outcome.err); known != nil {
		return notReady(known.reason, known.message)
	}
	switch sandbox := outcome.sandbox; {
	case outcome.err != nil:
		return notReady(reasonReconcilerError, "Error seen: "+outcome.err.Error())
	case outcome.foreign:
		return notReady(reasonClaimExpired, "Claim expired. Sandbox is not controlled by this claim; deletion skipped.")
	case outcome.expired:
		return notReady(reasonClaimExpired, claimExpiredMessage)
	case sandbox == nil:
		return notReady(reasonSandboxMissing, "Sandbox does not exist")
	case markedExpired(sandbox):
		return notReady(reasonSandboxExpired, "Underlying Sandbox resource has expired independently of the Claim.")
	default:
		ready := meta.FindStatusCondition(sandbox.Status.Conditions, string(agents.ConditionReady))
		if ready == nil {
			return notReady(reasonSandboxNotReady, "Sandbox is not ready")
		}
		return *ready
	}
}

// claimFinished is the Finished condition, nil when there is none. An expired claim keeps it after its Sandbox is gone,
// and a pass that did not see the Sandbox leaves it alone.
func claimFinished(claim *ext.SandboxClaim, outcome claimOutcome) *metav1.Condition {
	kept := meta.FindStatusCondition(claim.Status.Conditions, string(agents.ConditionFinished))
	if outcome.sandbox == nil {
		if outcome.expired || outcome.err != nil {
			return kept
		}
		return nil
	}
	finished := meta.FindStatusCondition(outcome.sandbox.Status.Conditions, string(agents.ConditionFinished))
	if finished == nil {
		if outcome.expired {
			return kept
		}
		return nil
	}
	mirrored := *finished
	mirrored.ObservedGeneration = claim.Generation
	return &mirrored
}

// Reasons of a claim's Ready condition, beside those it copies from its Sandbox. Clients branch on them.
const (
	reasonTemplateNotFound     = "TemplateNotFound"
	reasonWarmPoolNotFound     = "WarmPoolNotFound"
	reasonAdoptionConflict     = "AdoptionConflict"
	reasonSandboxCreatePending = "SandboxCreatePending"
	reasonInvalidMetadata      = "InvalidMetadata"
	reasonEnvVarsRejected      = "EnvVarsInjectionRejected"
	reasonVolumesRejected      = "VolumeClaimTemplatesError"
	reasonClaimExpired         = "ClaimExpired"
	reasonSandboxMissing       = "SandboxMissing"
	reasonSandboxNotReady      = "SandboxNotReady"
)

const (
	missingRecheck = time.Minute            // watches wake the claim sooner
	createRecheck  = 200 * time.Millisecond // the cache shows a creation within milliseconds
)

// problem is an error that has a reason of its own in the Ready condition of a claim. One without a reason ends the pass
// without a status.
type problem struct {
	reason  string
	message string
	// What to do next: look again after a time, or back off, or else wait until somebody changes something.
	retryAfter time.Duration
	backOff    bool
}

func (p *problem) Error() string { return p.message }

// problemOf returns the problem that err is, nil if it is none.
func problemOf(err error) *problem {
	known, _ := errors.AsType[*problem](err)
	return known
}

// isMissing reports whether err says that a template or a pool does not exist.
func isMissing(err error) bool {
	known := problemOf(err)
	return known != nil && (known.reason == reasonTemplateNotFound || known.reason == reasonWarmPoolNotFound)
}

func warmPoolNotFound(name string) error {
	return &problem{reason: reasonWarmPoolNotFound, message: fmt.Sprintf("SandboxWarmPool %q not found", name), retryAfter: missingRecheck}
}

func adoptionConflict(format string, args ...any) error {
	return &problem{
		reason:  reasonAdoptionConflict,
		message: fmt.Sprintf(format, args...) + "; the next pass retries from a converged view",
		backOff: true,
	}
}

func envRejected(message string) error {
	return &problem{reason: reasonEnvVarsRejected, message: message}
}

// errStaleClaim ends a pass without a trace: the claim was changed behind the pass's back, and that change brings the
// next pass.
var errStaleClaim = errors.New("the claim has changed since it was read")
