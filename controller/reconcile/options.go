package reconcile

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Options tunes the reconcilers. DefaultOptions returns the values that an operator gets without setting any flag.
type Options struct {
	Extensions    bool   // run the SandboxTemplate, SandboxWarmPool and SandboxClaim controllers
	ClusterDomain string // DNS domain of Services

	SandboxWorkers  int
	TemplateWorkers int
	WarmPoolWorkers int
	ClaimWorkers    int

	WarmPoolMaxBatch              int           // most sandboxes that a pool creates or deletes in one pass
	WarmPoolReplenishDelay        time.Duration // hold refills so long after the last drop in members; 0 refills at once
	WarmPoolMaxRefillRate         float64       // sandboxes a second and pool; 0 is no limit
	WarmPoolReadinessGrace        time.Duration // a member not Ready for longer is replaced
	WarmPoolUnschedulableRecheck  time.Duration // how often a pool with unschedulable members looks again
	WarmPoolEviction              bool          // let the cluster autoscaler evict unclaimed members
	ClaimEvents                   bool          // record events of claims
	ClaimObservabilityAnnotations bool          // stamp claims with the time they were first seen

	WriteBehindWindow time.Duration // longest time that metadata of an owned Pod may lag, at most 1 s; 0 writes at once
}

// DefaultOptions returns the defaults of the command line.
func DefaultOptions() Options {
	return Options{
		ClusterDomain:                 "cluster.local",
		SandboxWorkers:                100,
		TemplateWorkers:               1,
		WarmPoolWorkers:               1,
		ClaimWorkers:                  50,
		WarmPoolMaxBatch:              300,
		WarmPoolReadinessGrace:        5 * time.Minute,
		WarmPoolUnschedulableRecheck:  time.Minute,
		WarmPoolEviction:              true,
		ClaimEvents:                   true,
		ClaimObservabilityAnnotations: true,
	}
}

// Validate returns an error that names the flag of every value out of range.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, flag, rule string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s must be %s, not %v", flag, rule, value))
		}
	}
	check(o.SandboxWorkers > 0, "sandbox-concurrent-workers", "greater than 0", o.SandboxWorkers)
	check(o.ClaimWorkers > 0, "sandbox-claim-concurrent-workers", "greater than 0", o.ClaimWorkers)
	check(o.WarmPoolWorkers > 0, "sandbox-warm-pool-concurrent-workers", "greater than 0", o.WarmPoolWorkers)
	check(o.WarmPoolMaxBatch > 0, "sandbox-warm-pool-max-batch-size", "greater than 0", o.WarmPoolMaxBatch)
	check(o.WarmPoolMaxRefillRate >= 0 && !math.IsInf(o.WarmPoolMaxRefillRate, 0),
		"sandbox-warm-pool-max-refill-rate", "a finite number, 0 or more", o.WarmPoolMaxRefillRate)
	check(o.WarmPoolReplenishDelay >= 0, "sandbox-warm-pool-replenish-delay", "0 or more", o.WarmPoolReplenishDelay)
	check(o.WarmPoolReadinessGrace > 0, "sandbox-warm-pool-readiness-grace-period", "greater than 0", o.WarmPoolReadinessGrace)
	check(o.WarmPoolUnschedulableRecheck > 0,
		"sandbox-warm-pool-unschedulable-recheck-interval", "greater than 0", o.WarmPoolUnschedulableRecheck)
	check(o.WriteBehindWindow >= 0, "sandbox-write-behind-window", "0 or more", o.WriteBehindWindow)
	check(o.ClusterDomain != "", "cluster-domain", "a DNS domain", `""`)
	return errors.Join(errs...)
}
