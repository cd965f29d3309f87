package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	parallelBinds  = 8
	parallelWrites = 16 // of pod statuses

	nodeCheckPeriod = 10 * time.Second
	shutdownGrace   = 2 * time.Second // for the processes of the pods when the agent itself ends
)

// agent is the scheduler and the kubelet of its nodes.
type agent struct {
	client    kubernetes.Interface
	pods      corelisters.PodLister
	nodes     nodeSet
	turn      atomic.Uint32 // for the round robin over nodes
	addresses *addresses
	dataDir   string
	runtime   program
	programs  []program
	server    *rest.Config  // where the API server is
	writes    chan struct{} // semaphore

	mu   sync.Mutex
	runs map[string]*podRun // by namespace/name; kept until the pod object is gone
}

// serve runs the agent until ctx ends, and calls ready once it has registered its nodes and knows all pods.
func (a *agent) serve(ctx context.Context, ready func()) error {
	if err := a.nodes.register(ctx, a.client); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(a.client, 0, informers.WithTransform(withoutManagedFields))
	informer := factory.Core().V1().Pods().Informer()
	a.pods = factory.Core().V1().Pods().Lister()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 5*time.Second))
	enqueue := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			queue.Add(key)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }, DeleteFunc: enqueue,
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return context.Cause(ctx)
	}
	if err := a.resume(); err != nil {
		return err
	}

	var workers sync.WaitGroup
	for range parallelBinds {
		workers.Go(func() { a.work(ctx, queue) })
	}
	ready()
	a.keepNodes(ctx)

	queue.ShutDown()
	workers.Wait()
	for _, run := range a.runs {
		run.end(shutdownGrace)
	}
	for _, run := range a.runs {
		<-run.done
	}
	return nil
}

// withoutManagedFields drops what makes up most of a pod in memory and is never read here.
func withoutManagedFields(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields = nil
	}
	return object, nil
}

// keepNodes looks after the nodes until ctx ends.
func (a *agent) keepNodes(ctx context.Context) {
	ticker := time.NewTicker(nodeCheckPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := a.nodes.register(ctx, a.client); err != nil && ctx.Err() == nil {
				log.Print(err)
			}
		}
	}
}

// resume takes over from an earlier run of the agent: live pods keep their addresses, and the files of pods that are
// gone are removed. Their processes ended with the earlier agent.
func (a *agent) resume() error {
	pods, err := a.pods.List(labels.Everything())
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, pod := range pods {
		known[string(pod.UID)] = true
		if ip, err := netip.ParseAddr(pod.Status.PodIP); err == nil && a.nodes.named(pod.Spec.NodeName) != nil && !hasEnded(pod) {
			a.addresses.keep(ip)
		}
	}
	entries, err := os.ReadDir(filepath.Join(a.dataDir, "pods"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if !known[entry.Name()] {
			if err := os.RemoveAll(filepath.Join(a.dataDir, "pods", entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *agent) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		if err := a.sync(ctx, key); err != nil && ctx.Err() == nil {
			log.Printf("pod %s: %v", key, err)
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

// sync brings what runs here in line with what the API server says about the pod.
func (a *agent) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	pod, err := a.pods.Pods(namespace).Get(name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	gone := err != nil

	a.mu.Lock()
	run := a.runs[key]
	if run != nil && (gone || run.pod.UID != pod.UID) {
		delete(a.runs, key)
		run.discard()
		run = nil
	}
	a.mu.Unlock()

	switch {
	case gone:
		return nil
	case pod.Spec.NodeName == "":
		return a.place(ctx, pod)
	case a.nodes.named(pod.Spec.NodeName) == nil:
		return nil
	case run != nil && pod.DeletionTimestamp != nil:
		run.end(gracePeriod(pod))
		return nil
	case pod.DeletionTimestamp != nil: // nothing of it runs, or it did under an earlier agent
		return a.deletePod(ctx, pod)
	case run != nil || hasEnded(pod):
		return nil
	default:
		return a.start(ctx, key, pod)
	}
}

func (a *agent) start(ctx context.Context, key string, pod *corev1.Pod) error {
	ip, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil || !a.addresses.keep(ip) {
		if ip, err = a.addresses.take(); err != nil {
			return err
		}
	}
	run, err := newPodRun(ctx, a, pod, ip)
	if err != nil {
		a.addresses.release(ip)
		return fmt.Errorf("prepare: %w", err)
	}
	a.mu.Lock()
	a.runs[key] = run
	a.mu.Unlock()
	go run.live()
	return nil
}

// patchStatus writes the difference between two statuses of the pod, provided that it is still the same pod.
func (a *agent) patchStatus(ctx context.Context, pod *corev1.Pod, from, to *corev1.PodStatus) error {
	patch, err := statusPatch(pod.UID, from, to)
	if err != nil {
		return err
	}
	a.writes <- struct{}{}
	defer func() { <-a.writes }()
	_, err = a.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// deletePod removes the object of a pod that has ended, as a kubelet does. It is no error if it is gone already.
func (a *agent) deletePod(ctx context.Context, pod *corev1.Pod) error {
	err := a.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// gracePeriod is how long a pod that is being deleted may take to end.
func gracePeriod(pod *corev1.Pod) time.Duration {
	if pod.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
}
