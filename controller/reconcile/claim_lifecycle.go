package reconcile

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// claimExpiry is the moment at which a claim with these conditions expires: its shutdown time, or so long after its
// Sandbox finished, whichever is first. It is zero when there is no such moment.
func claimExpiry(lifecycle *ext.ClaimLifecycle, conditions []metav1.Condition) time.Time {
	if lifecycle == nil {
		return time.Time{}
	}
	var expiry time.Time
	if lifecycle.ShutdownTime != nil {
		expiry = lifecycle.ShutdownTime.Time
	}
	finished := meta.FindStatusCondition(conditions, string(agents.ConditionFinished))
	if lifecycle.TTLSecondsAfterFinished != nil && finished != nil && finished.Status == metav1.ConditionTrue {
		ttl := time.Duration(*lifecycle.TTLSecondsAfterFinished) * time.Second
		if end := finished.LastTransitionTime.Add(ttl); expiry.IsZero() || end.Before(expiry) {
			expiry = end
		}
	}
	return expiry
}

// claimExpired reports whether a claim with these conditions has expired at now.
func claimExpired(lifecycle *ext.ClaimLifecycle, conditions []metav1.Condition, now time.Time) bool {
	expiry := claimExpiry(lifecycle, conditions)
	return !expiry.IsZero() && !now.Before(expiry)
}

// markedClaimExpired reports whether the claim's status says that it expired. Only then does its sandbox go, so that
// whoever sees it go can see why.
func markedClaimExpired(claim *ext.SandboxClaim) bool {
	ready := meta.FindStatusCondition(claim.Status.Conditions, string(agents.ConditionReady))
	return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == reasonClaimExpired
}
