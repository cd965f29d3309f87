package config

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
)

// inverse sets a field that is named for what is on from a flag that is named for what is off.
func inverse(on *bool) func(string) error {
	return func(value string) error {
		off, err := strconv.ParseBool(value)
		*on = !off
		return err
	}
}

// bindWebhook accepts the flags of the upstream webhook, which manifests may carry, and returns --enable-webhook. The others
// mean nothing without it.
func bindWebhook(fs *flag.FlagSet) *bool {
	enabled := fs.Bool("enable-webhook", false, "deprecated, must be false: only v1beta1 is served, which needs no conversion")
	for _, name := range []string{"webhook-port", "webhook-cert-dir", "webhook-cert-name", "webhook-key-name", "webhook-service-name", "webhook-namespace"} {
		fs.String(name, "", "deprecated, ignored")
	}
	fs.Bool("manage-webhook-certs", false, "deprecated, ignored")
	return enabled
}

func (c *Config) validate() error {
	errs := []error{c.Reconcile.Validate()}
	if c.Burst <= 0 {
		errs = append(errs, fmt.Errorf("--kube-api-burst must be greater than 0, not %d", c.Burst))
	}
	if c.Connections < 1 {
		errs = append(errs, fmt.Errorf("--api-connections must be 1 or more, not %d", c.Connections))
	}
	return errors.Join(errs...)
}

// Warnings returns what is allowed and probably a mistake.
func (c *Config) Warnings() []string {
	const manyWorkers = 1000
	var warnings []string
	o := &c.Reconcile
	workers := o.SandboxWorkers + o.ClaimWorkers + o.WarmPoolWorkers + o.TemplateWorkers
	if workers > manyWorkers {
		warnings = append(warnings, fmt.Sprintf("%d workers in all: more than %d rarely help and load the API server", workers, manyWorkers))
	}
	if c.QPS > 0 && workers > c.Burst {
		warnings = append(warnings, fmt.Sprintf("%d workers share --kube-api-burst=%d: most will wait for each other", workers, c.Burst))
	}
	return warnings
}
