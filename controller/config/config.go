// Package config reads the command line of the controller. Flag names and meanings are those of the upstream controller, so
// that its deployments and charts keep working.
package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"

	"go.uber.org/zap/zapcore"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/dovakiin0/agent-sandbox/controller/reconcile"
)

// Config is everything that the command line sets.
type Config struct {
	Reconcile reconcile.Options
	Log       zap.Options
	Version   bool // print the version and exit

	MetricsAddress string // host:port, "0" for none
	ProbeAddress   string // host:port, "0" for none

	LeaderElect             bool
	LeaderElectionNamespace string // "" for the controller's own

	QPS                     float64 // requests a second to the API server; negative is no limit
	Burst                   int
	Connections             int  // connections for requests other than watches
	SeparateWatchConnection bool // keep watches off those connections
	TrackedOnly             bool // cache only Pods and Services with the label sandbox-name-hash

	Tracing              bool // export traces over OTLP
	Pprof                bool
	PprofDebug           bool // also sample blocking and mutexes
	BlockProfileRate     int
	MutexProfileFraction int
}

// Parse reads args, the command line without the program's name. On a mistake it returns one line that names the flag; on
// -h it prints the flags to out and returns flag.ErrHelp.
func Parse(args []string, out io.Writer) (*Config, error) {
	c := &Config{Reconcile: reconcile.DefaultOptions()}
	c.Log.StacktraceLevel = zapcore.DPanicLevel // where an error of a pass surfaces is always the same place
	fs := flag.NewFlagSet("agent-sandbox-controller", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // the caller prints the error; the list of flags would bury it
	ctrlconfig.RegisterFlags(fs)
	c.Log.BindFlags(fs)
	c.bind(fs)
	c.bindReconcile(fs)
	webhook := bindWebhook(fs)

	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(out)
			fs.PrintDefaults()
		}
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: only flags are taken", fs.Arg(0))
	}
	if *webhook {
		return nil, errors.New("--enable-webhook must be false: only v1beta1 is served, which needs no conversion webhook")
	}
	return c, c.validate()
}

func (c *Config) bind(fs *flag.FlagSet) {
	fs.BoolVar(&c.Version, "version", false, "print the version and exit")
	fs.StringVar(&c.MetricsAddress, "metrics-bind-address", ":8080", "address of /metrics, 0 for none")
	fs.StringVar(&c.ProbeAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz, 0 for none")
	fs.BoolVar(&c.LeaderElect, "leader-elect", true, "run only while holding the lease, so that replicas may stand by")
	fs.StringVar(&c.LeaderElectionNamespace, "leader-election-namespace", "", "namespace of the lease; the controller's own when empty")
	fs.Float64Var(&c.QPS, "kube-api-qps", -1, "requests a second to the API server; negative is no limit")
	fs.IntVar(&c.Burst, "kube-api-burst", 10, "requests above kube-api-qps that may go at once")
	fs.IntVar(&c.Connections, "api-connections", 1, "connections to the API server for requests other than watches")
	fs.BoolVar(&c.SeparateWatchConnection, "separate-watch-connection", true,
		"give watches a connection of their own, so that bursts of writes do not delay events")
	fs.BoolVar(&c.TrackedOnly, "cache-label-selectors", false,
		"cache only Pods and Services with the label agents.x-k8s.io/sandbox-name-hash; objects to adopt need it too")
	fs.BoolVar(&c.Tracing, "enable-tracing", false, "export traces over OTLP gRPC, to where the OTEL_EXPORTER_OTLP_* environment says")
	fs.BoolVar(&c.Pprof, "enable-pprof", false, "serve /debug/pprof on the metrics address")
	fs.BoolVar(&c.PprofDebug, "enable-pprof-debug", false, "as --enable-pprof, and sample blocking and mutexes")
	fs.IntVar(&c.BlockProfileRate, "pprof-block-profile-rate", 1000000, "sample one blocking event per so many nanoseconds blocked")
	fs.IntVar(&c.MutexProfileFraction, "pprof-mutex-profile-fraction", 10, "sample one of so many mutex contentions")
}

func (c *Config) bindReconcile(fs *flag.FlagSet) {
	o := &c.Reconcile
	fs.BoolVar(&o.Extensions, "extensions", false, "run the SandboxTemplate, SandboxWarmPool and SandboxClaim controllers")
	fs.StringVar(&o.ClusterDomain, "cluster-domain", o.ClusterDomain, "DNS domain of Services")
	fs.IntVar(&o.SandboxWorkers, "sandbox-concurrent-workers", o.SandboxWorkers, "Sandboxes reconciled at once")
	fs.IntVar(&o.ClaimWorkers, "sandbox-claim-concurrent-workers", o.ClaimWorkers, "SandboxClaims reconciled at once")
	fs.IntVar(&o.WarmPoolWorkers, "sandbox-warm-pool-concurrent-workers", o.WarmPoolWorkers, "SandboxWarmPools reconciled at once")
	fs.IntVar(&o.TemplateWorkers, "sandbox-template-concurrent-workers", o.TemplateWorkers, "SandboxTemplates reconciled at once")
	fs.IntVar(&o.WarmPoolMaxBatch, "sandbox-warm-pool-max-batch-size", o.WarmPoolMaxBatch, "most sandboxes a pool creates or deletes in one pass")
	fs.DurationVar(&o.WarmPoolReplenishDelay, "sandbox-warm-pool-replenish-delay", o.WarmPoolReplenishDelay,
		"hold refills of a pool so long after it last lost a member")
	fs.Float64Var(&o.WarmPoolMaxRefillRate, "sandbox-warm-pool-max-refill-rate", o.WarmPoolMaxRefillRate,
		"sandboxes a second that a pool creates; 0 is no limit")
	fs.DurationVar(&o.WarmPoolReadinessGrace, "sandbox-warm-pool-readiness-grace-period", o.WarmPoolReadinessGrace,
		"replace pool members that are not Ready for longer")
	fs.DurationVar(&o.WarmPoolUnschedulableRecheck, "sandbox-warm-pool-unschedulable-recheck-interval", o.WarmPoolUnschedulableRecheck,
		"how often a pool with unschedulable members looks again")
	fs.BoolVar(&o.WarmPoolEviction, "enable-warm-pool-eviction", o.WarmPoolEviction, "let the cluster autoscaler evict unclaimed pool members")
	fs.DurationVar(&o.WriteBehindWindow, "sandbox-write-behind-window", o.WriteBehindWindow,
		"longest time that metadata of a Sandbox's Pod may lag, at most 1s; 0 writes at once")
	fs.BoolFunc("disable-claim-events", "record no events of claims", inverse(&o.ClaimEvents))
	fs.BoolFunc("disable-claim-observability-annotations", "do not annotate claims with the time they were first seen",
		inverse(&o.ClaimObservabilityAnnotations))
}

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
