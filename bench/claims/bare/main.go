// Command bare is a yardstick for bench/claims, not a model: it serves claims with the fewest writes with which this API
// can be served. Machines differ, so figures of other controllers are read as ratios to its figures, measured beside theirs.
//
//	go build -o bin/claims-bare ./bench/claims/bare
//	go run ./bench/claims --router= --controller=bin/claims-bare
//
// A member of a pool takes three writes: its Sandbox, its Pod, and the Sandbox's status when the Pod is Ready. A claim takes
// two: the Sandbox gets another owner, and the claim its status. So a claim with its refill takes five.
//
// Everything that makes a controller fit for use is left out. It keeps what it knows in memory, expects to start once, on an
// empty cluster, and deletes, repairs and explains nothing. There are no Services, volumes, policies, events or routes, and
// after an error it tries again.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// workers is how many objects of a kind are worked on at once. bench/claims creates as many claims at once.
const workers = 20

func main() {
	ctrl.SetLogger(zap.New())
	restConfig, err := ctrl.GetConfig()
	if err == nil {
		err = run(ctrl.SetupSignalHandler(), restConfig)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, restConfig *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), agents.AddToScheme(scheme), ext.AddToScheme(scheme)); err != nil {
		return err
	}
	restConfig = rest.CopyConfig(restConfig)
	restConfig.QPS = -1 // no limit
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:     scheme,
		Cache:      cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Controller: config.Controller{MaxConcurrentReconciles: workers, SkipNameValidation: new(true)}, // a test may run it again
		Metrics:    server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	b := &bare{
		Client: mgr.GetClient(), changed: make(chan event.TypedGenericEvent[types.NamespacedName]),
		pools: map[types.NamespacedName]*pool{}, taken: map[types.NamespacedName]member{},
	}
	created := builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }})
	becameReady := builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return podReady(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return podReady(e.ObjectNew) && !podReady(e.ObjectOld) },
	})
	resized := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	changed := source.Channel(b.changed, handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, pool types.NamespacedName) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: pool}}
	}))
	if err := errors.Join(
		ctrl.NewControllerManagedBy(mgr).For(&agents.Sandbox{}, created).Owns(&corev1.Pod{}, becameReady).Complete(reconcile.Func(b.reconcileSandbox)),
		ctrl.NewControllerManagedBy(mgr).For(&ext.SandboxClaim{}, created).Complete(reconcile.Func(b.reconcileClaim)),
		ctrl.NewControllerManagedBy(mgr).For(&ext.SandboxWarmPool{}, resized).WatchesRawSource(changed).Complete(reconcile.Func(b.reconcilePool)),
	); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
