package reconcile

import (
	"errors"
	"fmt"
	"time"
)

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

// problem is an error that has a reason of its own in the Ready condition of a claim.
type problem struct {
	reason  string
	message string
	// What to do next: look again after a time, or back off, or else wait until somebody changes something.
	retryAfter time.Duration
	backOff    bool
}

func (p *problem) Error() string { return p.message }

// isMissing reports whether err says that a template or a pool does not exist.
func isMissing(err error) bool {
	known := (*problem)(nil)
	return errors.As(err, &known) && (known.reason == reasonTemplateNotFound || known.reason == reasonWarmPoolNotFound)
}

func templateNotFound(name string) error {
	return &problem{reason: reasonTemplateNotFound, message: fmt.Sprintf("SandboxTemplate %q not found", name), retryAfter: missingRecheck}
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

func createPending() error {
	return &problem{
		reason:     reasonSandboxCreatePending,
		message:    "Sandbox already created; waiting for cache to converge",
		retryAfter: createRecheck,
	}
}

func invalidMetadata(err error) error {
	return &problem{reason: reasonInvalidMetadata, message: err.Error()}
}

func envRejected(message string) error {
	return &problem{reason: reasonEnvVarsRejected, message: message}
}

func volumesRejected(err error) error {
	return &problem{reason: reasonVolumesRejected, message: err.Error()}
}

// errStaleClaim ends a pass without a trace: the claim was changed behind the pass's back, and that change brings the
// next pass.
var errStaleClaim = errors.New("the claim has changed since it was read")

// noAddressYet ends a pass without a status: all candidates wait for their pods' addresses, and a short wait costs less
// than a cold start.
type noAddressYet struct{ retryAfter time.Duration }

func (e *noAddressYet) Error() string { return "no candidate has an address yet" }
