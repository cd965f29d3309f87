package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
)

const (
	// gcSyncPeriod is how often the garbage collector looks for new kinds. kube-controller-manager takes 30 s; here a
	// test installs its CRDs and expects cascades at once.
	gcSyncPeriod = time.Second

	gcWorkers            = 20 // as kube-controller-manager
	namespaceWorkers     = 10
	endpointSliceWorkers = 5
	deploymentWorkers    = 5
	replicaSetWorkers    = 5
	endpointsPerSlice    = 100
)

// startControllers starts the controllers and returns; they run until ctx ends.
func startControllers(ctx context.Context, config *rest.Config, client kubernetes.Interface) error {
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("metadata client: %w", err)
	}
	typed := informers.NewSharedInformerFactory(client, 0)
	started := make(chan struct{})

	slices := endpointslice.NewController(ctx,
		typed.Core().V1().Pods(), typed.Core().V1().Services(), typed.Core().V1().Nodes(),
		typed.Discovery().V1().EndpointSlices(), endpointsPerSlice, client, 0)
	namespaces := namespace.NewNamespaceController(ctx, client, metadataClient,
		client.Discovery().ServerPreferredNamespacedResources,
		typed.Core().V1().Namespaces(), 5*time.Minute, corev1.FinalizerKubernetes)
	// Without a default service account in its namespace no pod is admitted.
	accounts, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx),
		typed.Core().V1().ServiceAccounts(), typed.Core().V1().Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return fmt.Errorf("service account controller: %w", err)
	}
	deployments, err := deployment.NewDeploymentController(ctx,
		typed.Apps().V1().Deployments(), typed.Apps().V1().ReplicaSets(), typed.Core().V1().Pods(), client)
	if err != nil {
		return fmt.Errorf("deployment controller: %w", err)
	}
	replicaSets := replicaset.NewReplicaSetController(ctx,
		typed.Apps().V1().ReplicaSets(), typed.Core().V1().Pods(), client, replicaset.BurstReplicas)
	collector, err := garbagecollector.NewGarbageCollector(ctx, client, metadataClient,
		restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
		garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(typed, metadatainformer.NewSharedInformerFactory(metadataClient, 0)),
		started)
	if err != nil {
		return fmt.Errorf("garbage collector: %w", err)
	}

	go slices.Run(ctx, endpointSliceWorkers)
	go namespaces.Run(ctx, namespaceWorkers)
	go accounts.Run(ctx, 1)
	go deployments.Run(ctx, deploymentWorkers)
	go replicaSets.Run(ctx, replicaSetWorkers)
	go collector.Run(ctx, gcWorkers, gcSyncPeriod)
	go collector.Sync(ctx, client.Discovery(), gcSyncPeriod)
	typed.Start(ctx.Done())
	close(started) // from here on the garbage collector starts the informers that it adds
	return nil
}
