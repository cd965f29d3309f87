// Package reconcile holds the controllers of the four API types and of the routes they publish.
//
// Each type has a small reconciler that reads, calls pure builders and pure status functions that live beside it, and
// writes what differs. Reads come from the manager's cache, except where a decision must not rest on a stale view.
// Objects read from the cache are shared: nothing in this package changes one, it changes copies.
package reconcile

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dovakiin0/agent-sandbox/controller/priority"
	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// fieldOwner is the field manager of all writes.
const fieldOwner = "sandbox-controller"

// shared is what the reconcilers of one process have in common.
type shared struct {
	client     *store
	live       client.Reader // reads from the API server
	now        func() time.Time
	recorder   events.EventRecorder
	routes     *routePublisher
	candidates *candidates
	gate       *priority.Gate
}

// Setup registers the controllers with mgr, whose requests pass the gate.
func Setup(mgr ctrl.Manager, o Options, gate *priority.Gate) error {
	s := newShared(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("agent-sandbox-controller"), time.Now)
	s.gate = gate
	for _, index := range indexes {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), index.object, index.field, index.values); err != nil {
			return fmt.Errorf("index %s: %w", index.field, err)
		}
	}
	controllers := []func(ctrl.Manager, Options, *shared) error{setupSandbox}
	if o.Extensions {
		controllers = append(controllers, setupTemplate, setupWarmPool, setupClaim)
	}
	for _, setup := range controllers {
		if err := setup(mgr, o, s); err != nil {
			return err
		}
	}
	return registerSandboxGauge(metrics.Registry, mgr.GetCache())
}

func newShared(c client.Client, live client.Reader, recorder events.EventRecorder, now func() time.Time) *shared {
	client := newStore(c, live, now)
	return &shared{
		client:     client,
		live:       live,
		now:        now,
		recorder:   recorder,
		routes:     newRoutePublisher(client, now),
		candidates: newCandidates(),
		gate:       &priority.Gate{},
	}
}

// Cache indexes. A list by index costs what it returns; a list by label scans the namespace.
const (
	indexNameHash = "sandbox-name-hash" // Pods by LabelSandboxNameHash
	indexWarmPool = "warm-pool-sandbox" // Sandboxes by LabelWarmPool, which is the hash of the pool's name
	indexTemplate = "template-ref"      // SandboxWarmPools by the name of their template
	indexPool     = "warm-pool-ref"     // SandboxClaims by the name of their pool
)

type index struct {
	object client.Object
	field  string
	values client.IndexerFunc
}

// indexes is all the cache indexes; tests give them to their fake client as well.
var indexes = []index{
	{&corev1.Pod{}, indexNameHash, byLabel(proto.LabelSandboxNameHash)},
	{&agents.Sandbox{}, indexWarmPool, byLabel(proto.LabelWarmPool)},
	{&ext.SandboxWarmPool{}, indexTemplate, func(o client.Object) []string {
		return []string{o.(*ext.SandboxWarmPool).Spec.TemplateRef.Name}
	}},
	{&ext.SandboxClaim{}, indexPool, func(o client.Object) []string {
		return []string{o.(*ext.SandboxClaim).Spec.WarmPoolRef.Name}
	}},
}

func byLabel(key string) client.IndexerFunc {
	return func(o client.Object) []string {
		if value := o.GetLabels()[key]; value != "" {
			return []string{value}
		}
		return nil
	}
}
