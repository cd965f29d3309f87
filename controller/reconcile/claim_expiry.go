package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// expiryStep is the time between the two steps of an expiry: say so, then act.
const expiryStep = time.Millisecond

// expire takes the second step of an expiry if the first one is done, and the first one otherwise.
func (p *claimPass) expire(ctx context.Context) (ctrl.Result, error) {
	if !markedClaimExpired(p.claim) {
		return p.markExpired(ctx, nil)
	}
	policy := p.claim.Spec.Lifecycle.ShutdownPolicy
	if policy == ext.ClaimShutdownDelete || policy == ext.ClaimShutdownDeleteForeground {
		return ctrl.Result{}, p.deleteClaim(ctx, policy)
	}
	sandbox, foreign, err := p.deleteSandbox(ctx)
	if err != nil {
		return ctrl.Result{}, err // the status says already what it must
	}
	status := claimStatus(p.claim, claimOutcome{sandbox: sandbox, expired: true, foreign: foreign}, p.now())
	return ctrl.Result{}, p.writeStatus(ctx, status, sandbox)
}

// markExpired says that the claim has expired. The sandbox is nil if the pass has not seen it.
func (p *claimPass) markExpired(ctx context.Context, sandbox *agents.Sandbox) (ctrl.Result, error) {
	outcome := claimOutcome{sandbox: sandbox, unseen: sandbox == nil, expired: true}
	if err := p.writeStatus(ctx, claimStatus(p.claim, outcome, p.now()), sandbox); err != nil {
		return ctrl.Result{}, err
	}
	p.event("ClaimExpired", "Claim Expired", "Claim expired")
	return ctrl.Result{RequeueAfter: expiryStep}, nil
}

func (p *claimPass) deleteClaim(ctx context.Context, policy ext.ClaimShutdownPolicy) error {
	propagation := metav1.DeletePropagationBackground
	if policy == ext.ClaimShutdownDeleteForeground {
		propagation = metav1.DeletePropagationForeground
	}
	err := p.client.remove(ctx, p.claim, client.PropagationPolicy(propagation))
	if err == nil {
		p.event("ClaimExpired", "Deleting", fmt.Sprintf("Deleting Claim (ShutdownPolicy=%s)", policy))
	}
	return err
}

// deleteSandbox deletes the claim's Sandbox and returns it as long as it exists. Foreign means that the Sandbox of the
// recorded name is not the claim's.
func (p *claimPass) deleteSandbox(ctx context.Context) (sandbox *agents.Sandbox, foreign bool, err error) {
	names := []string{p.claim.Status.Sandbox.Name, assignedSandbox(p.claim), p.claim.Name}
	recorded := cmp.Or(names...)
	for _, name := range names {
		if name == "" {
			continue
		}
		sandbox, err := p.readThrough(ctx, name)
		if err != nil {
			return nil, false, err
		}
		if sandbox == nil {
			continue
		}
		if !controlledBy(sandbox, p.claim.UID) {
			foreign = foreign || name == recorded
			p.queueMember(sandbox) // one that the claim was committed to, and no more than that
			continue
		}
		return sandbox, false, p.client.remove(ctx, sandbox)
	}
	return nil, foreign, nil
}

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
