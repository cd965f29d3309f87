package reconcile

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// Every write to a claim carries the version that the pass has seen, and the pass goes on with the server's answer. So
// no write builds on less than the last one, and a conflict means that somebody else had a say.

// wrote makes the server's answer to a write the base of the rest of the pass and of the next one.
func (p *claimPass) wrote(claim *ext.SandboxClaim) {
	p.claims.record(claim)
	p.claim = claim
}

// prepareStamp notes what a claim is stamped with that is new to this controller.
func (p *claimPass) prepareStamp(ctx context.Context) {
	p.stamp = map[string]string{}
	if p.claim.Annotations[proto.AnnotationControllerFirstObserved] == "" {
		p.first = true
		p.stamp[proto.AnnotationControllerFirstObserved] = p.observed.at(p.claim.UID).UTC().Format(time.RFC3339Nano)
	}
	if trace := traceContext(ctx, p.claim); trace != "" {
		p.stamp[proto.AnnotationTraceContext] = trace
	}
}

// patchMetadata changes the claim's metadata, together with the stamp that waits.
func (p *claimPass) patchMetadata(ctx context.Context, change *metaChange) error {
	for key, value := range p.stamp {
		change.setAnnotation(key, value)
	}
	change.resourceVersion = p.claim.ResourceVersion
	fresh, err := applyPatch(ctx, p.client, p.claim, change.patch())
	if err != nil {
		return staleIfRefused(err)
	}
	p.stamp = nil
	p.wrote(fresh)
	return nil
}

// writeStamp writes the stamp if no other write took it along.
func (p *claimPass) writeStamp(ctx context.Context) error {
	if len(p.stamp) == 0 {
		return nil
	}
	return p.patchMetadata(ctx, &metaChange{})
}

// writeStatus writes the status if it differs, and keeps the books of the first Ready.
func (p *claimPass) writeStatus(ctx context.Context, status ext.SandboxClaimStatus, sandbox *agents.Sandbox) error {
	if err := p.writeStamp(ctx); err != nil {
		return err
	}
	wasReady := claimIsReady(p.claim)
	if patch := claimStatusPatch(p.claim, &status); patch != nil {
		fresh, err := applyPatch(ctx, p.client.Status(), p.claim, patch)
		if err != nil {
			return staleIfRefused(err)
		}
		p.wrote(fresh)
	}
	if !claimIsReady(p.claim) || p.claim.Annotations[proto.AnnotationClaimFirstReady] != "" {
		return nil
	}
	return p.writeFirstReady(ctx, wasReady, sandbox)
}

// writeFirstReady notes when the claim was Ready for the first time, so that it counts once in the latency metrics. Of a
// claim that was Ready before, the time is not known.
func (p *claimPass) writeFirstReady(ctx context.Context, wasReady bool, sandbox *agents.Sandbox) error {
	change := &metaChange{}
	if wasReady {
		change.setAnnotation(proto.AnnotationClaimFirstReady, "unknown")
		return p.patchMetadata(ctx, change)
	}
	now := p.now()
	seen := annotationTime(p.claim, proto.AnnotationControllerFirstObserved)
	if seen.IsZero() {
		seen = p.observed.at(p.claim.UID)
	}
	observeClaimReady(p.claim, sandbox, seen, now)
	change.setAnnotation(proto.AnnotationClaimFirstReady, now.UTC().Format(time.RFC3339Nano))
	err := p.patchMetadata(ctx, change)
	if errors.Is(err, errStaleClaim) {
		// The time is right whatever else has changed. The answer holds changes that no pass has seen, so it is not kept.
		change.resourceVersion = ""
		_, err = applyPatch(ctx, p.client, p.claim, change.patch())
	}
	return client.IgnoreNotFound(err)
}

// staleIfRefused turns the refusal of a write to an outdated or deleted claim into errStaleClaim.
func staleIfRefused(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errStaleClaim
	}
	return err
}

func claimIsReady(claim *ext.SandboxClaim) bool {
	return meta.IsStatusConditionTrue(claim.Status.Conditions, string(agents.ConditionReady))
}

// firstObserved remembers when this process first saw each claim. Safe for concurrent use.
type firstObserved struct {
	now func() time.Time

	mu    sync.Mutex
	times map[types.UID]time.Time
}

func newFirstObserved(now func() time.Time) *firstObserved {
	return &firstObserved{now: now, times: map[types.UID]time.Time{}}
}

// at returns the time at which the claim was first seen, which is now if it was not.
func (f *firstObserved) at(claim types.UID) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, known := f.times[claim]
	if !known {
		seen = f.now()
		f.times[claim] = seen
	}
	return seen
}

// forget drops a deleted claim.
func (f *firstObserved) forget(claim types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.times, claim)
}
