// Command controller runs the controllers of Sandboxes, SandboxTemplates, SandboxWarmPools and SandboxClaims, and publishes
// the routes that the sandbox router follows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"strings"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/dovakiin0/agent-sandbox/controller/config"
	"github.com/dovakiin0/agent-sandbox/controller/priority"
	"github.com/dovakiin0/agent-sandbox/controller/reconcile"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// leaseName is the lease that the upstream controller holds too, so that the two never run at once.
const leaseName = "a3317529.agent-sandbox.x-k8s.io"

func main() {
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "agent-sandbox-controller:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	c, err := config.Parse(args, os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case c.Version:
		fmt.Println(build())
		return nil
	}
	restConfig, err := connect(ctx, c) // before there is a log, so that its one line of error stands alone
	if err != nil {
		return err
	}
	log := zap.New(zap.UseFlagOptions(&c.Log))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	for _, warning := range c.Warnings() {
		log.Info("Warning: " + warning)
	}
	gate := &priority.Gate{}
	restConfig.Wrap(gate.Wrap)
	mgr, err := newManager(restConfig, c)
	if err != nil {
		return err
	}
	if err := reconcile.Setup(mgr, c.Reconcile, gate); err != nil {
		return err
	}
	if err := registerBuildInfo(metrics.Registry); err != nil {
		return err
	}
	if c.Tracing {
		flush, err := exportTraces(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = flush(context.WithoutCancel(ctx)) }() // spans lost at the end are no reason to fail
	}
	log.Info("Starting", "version", build().version, "extensions", c.Reconcile.Extensions)
	return mgr.Start(ctx)
}

func newManager(restConfig *rest.Config, c *config.Config) (ctrl.Manager, error) {
	scheme := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{clientgoscheme.AddToScheme, agents.AddToScheme, ext.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         reconcile.CacheOptions(c.TrackedOnly),
		NewCache:                      watchConnection(c.SeparateWatchConnection),
		NewClient:                     writeConnections(c.Connections),
		Metrics:                       metricsserver.Options{BindAddress: c.MetricsAddress, ExtraHandlers: profiles(c)},
		HealthProbeBindAddress:        c.ProbeAddress,
		LeaderElection:                c.LeaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       c.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true, // run returns right after, as that needs
	})
	if err != nil {
		if c.LeaderElect && c.LeaderElectionNamespace == "" {
			return nil, fmt.Errorf("%w (outside of a cluster set --leader-election-namespace, or --leader-elect=false)", err)
		}
		return nil, err
	}
	return mgr, errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping))
}

// profiles returns the handlers of /debug/pprof, none unless they are asked for.
func profiles(c *config.Config) map[string]http.Handler {
	if !c.Pprof && !c.PprofDebug {
		return nil
	}
	if c.PprofDebug {
		runtime.SetBlockProfileRate(c.BlockProfileRate)
		runtime.SetMutexProfileFraction(c.MutexProfileFraction)
	}
	return map[string]http.Handler{
		"/debug/pprof/":        http.HandlerFunc(pprof.Index),
		"/debug/pprof/cmdline": http.HandlerFunc(pprof.Cmdline),
		"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
		"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	}
}
