package reconcile

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

func podNamed(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Name, p.UID = name, "" }
}

func namesPod(name string) func(*agents.Sandbox) {
	return func(sb *agents.Sandbox) { sb.Annotations = map[string]string{proto.AnnotationPodName: name} }
}

func TestSandboxLife(t *testing.T) {
	f := newFixture(t, newSandbox("s"))

	_, err := f.reconcile("s")
	require.NoError(t, err)
	assert.Equal(t, []string{"create Pod", "patch Sandbox", "create EndpointSlice"}, f.wrote(), "the status waits for more")
	assert.Equal(t, "s", f.sandbox("s").Annotations[proto.AnnotationPodName])

	f.run("s")
	_, err = f.reconcile("s")
	require.NoError(t, err)
	assert.Equal(t, []string{"patch EndpointSlice", "status Sandbox"}, f.wrote(), "the route comes before Ready")
	sb := f.sandbox("s")
	assert.Equal(t, "Pod is Ready", find(sb, agents.ConditionReady).Message)
	assert.Equal(t, []string{"10.128.0.7"}, sb.Status.PodIPs)

	f.settle("s")
	assert.Empty(t, f.wrote(), "nothing changed, nothing is written")

	first := f.pod("s").UID
	require.NoError(t, f.client.Delete(t.Context(), f.pod("s")))
	f.wrote()
	f.shared.client.forget(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: first}}) // as the watch event would
	_, err = f.reconcile("s")
	require.NoError(t, err)
	assert.Equal(t, []string{"create Pod", "patch EndpointSlice", "status Sandbox"}, f.wrote())
	assert.NotEqual(t, first, f.pod("s").UID)
	sb = f.sandbox("s")
	assert.Equal(t, metav1.ConditionFalse, find(sb, agents.ConditionReady).Status, "not Ready is told at once")
	assert.Empty(t, sb.Status.PodIPs)
	assert.Empty(t, f.slice("s").Endpoints)
}

func TestStatusOfStartingPodIsWrittenInTime(t *testing.T) {
	f := newFixture(t, newSandbox("s"))
	result, err := f.reconcile("s")
	require.NoError(t, err)
	assert.LessOrEqual(t, result.RequeueAfter, statusDelay)
	assert.Positive(t, result.RequeueAfter)
	f.now = f.now.Add(result.RequeueAfter)
	_, err = f.reconcile("s")
	require.NoError(t, err)
	assert.Equal(t, "Pod exists with phase: ", f.ready("s").Message)
}

func TestPodResolution(t *testing.T) {
	sb := newSandbox("s")
	unowned := func(labels map[string]string, change ...func(*corev1.Pod)) *corev1.Pod {
		pod := runningPod(change...)
		pod.Labels = labels
		return pod
	}
	hash := map[string]string{proto.LabelSandboxNameHash: proto.NameHash("s")}
	foreign := unowned(hash, func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{foreignRef} })
	unlabelled := ownedBy(sb, runningPod())
	unlabelled.Labels = nil

	for name, c := range map[string]struct {
		sandbox []func(*agents.Sandbox)
		pods    []client.Object
		writes  []string
		podName string // annotation afterwards
		err     string
	}{
		"owned, not named yet":         {nil, []client.Object{ownedBy(sb, runningPod())}, []string{"patch Sandbox"}, "s", ""},
		"owned, label missing":         {nil, []client.Object{unlabelled}, []string{"patch Pod", "patch Sandbox"}, "s", ""},
		"owned, named":                 {[]func(*agents.Sandbox){namesPod("s")}, []client.Object{ownedBy(sb, runningPod())}, nil, "s", ""},
		"owned under another name":     {[]func(*agents.Sandbox){namesPod("mine")}, []client.Object{ownedBy(sb, runningPod(podNamed("mine")))}, nil, "mine", ""},
		"named pod gone":               {[]func(*agents.Sandbox){namesPod("gone")}, nil, []string{"patch Sandbox", "create Pod", "patch Sandbox"}, "s", ""},
		"named pod gone, owned is not": {[]func(*agents.Sandbox){namesPod("gone")}, []client.Object{ownedBy(sb, runningPod())}, []string{"patch Sandbox"}, "s", ""},
		"owner beats annotation":       {[]func(*agents.Sandbox){namesPod("other")}, []client.Object{unowned(nil, podNamed("other")), ownedBy(sb, runningPod())}, []string{"patch Sandbox"}, "s", ""},
		"adopted by label":             {nil, []client.Object{unowned(map[string]string{proto.LabelAdoptable: "true"})}, []string{"patch Pod", "patch Sandbox"}, "s", ""},
		"adopted by own hash":          {nil, []client.Object{unowned(hash)}, []string{"patch Pod", "patch Sandbox"}, "s", ""},
		"adopted under another name":   {[]func(*agents.Sandbox){namesPod("mine")}, []client.Object{unowned(map[string]string{proto.LabelAdoptable: "true"}, podNamed("mine"))}, []string{"patch Pod"}, "mine", ""},
		"not adoptable": {nil, []client.Object{unowned(map[string]string{proto.LabelAdoptable: "yes"})}, nil, "",
			`cannot adopt unowned pod "s": missing required pool authorization label ("agents.x-k8s.io/adoptable") or sandbox tracking label ("agents.x-k8s.io/sandbox-name-hash")`},
		"somebody else's": {[]func(*agents.Sandbox){namesPod("s")}, []client.Object{foreign}, []string{"patch Sandbox"}, "",
			`pod "s" is owned by ReplicaSet/other (UID: uid-of-other), not by sandbox "s"`},
		"finished, kept":     {nil, []client.Object{ownedBy(sb, runningPod(phase(corev1.PodFailed)))}, []string{"patch Sandbox"}, "s", ""},
		"suspended, none":    {[]func(*agents.Sandbox){suspended, namesPod("s")}, nil, []string{"patch Sandbox"}, "", ""},
		"suspended, owned":   {[]func(*agents.Sandbox){suspended, namesPod("s")}, []client.Object{ownedBy(sb, runningPod())}, []string{"create EndpointSlice", "delete Pod"}, "s", ""},
		"suspended, foreign": {[]func(*agents.Sandbox){suspended, namesPod("s")}, []client.Object{foreign}, []string{"patch Sandbox"}, "", ""},
		"suspended, unowned": {[]func(*agents.Sandbox){suspended, namesPod("s")}, []client.Object{unowned(nil)}, []string{"patch Sandbox"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{newSandbox("s", c.sandbox...)}
			for _, pod := range c.pods {
				objects = append(objects, pod.DeepCopyObject().(client.Object))
			}
			f := newFixture(t, objects...)
			_, err := f.r.reconcilePod(t.Context(), &pass{sb: f.sandbox("s")})
			if c.err == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.err)
			}
			assert.Equal(t, c.writes, f.wrote())
			assert.Equal(t, c.podName, f.sandbox("s").Annotations[proto.AnnotationPodName])
			if c.err == "" && c.sandbox == nil {
				assert.True(t, controlledBy(f.pod("s"), sb.UID))
				assert.Equal(t, proto.NameHash("s"), f.pod("s").Labels[proto.LabelSandboxNameHash])
			}
		})
	}
}

func TestPodIsNeverChangedBeyondMetadata(t *testing.T) {
	f := newFixture(t, newSandbox("s"))
	f.settle("s")
	image := f.pod("s").Spec.Containers[0].Image
	edit(f, f.sandbox("s"), func(sb *agents.Sandbox) {
		sb.Spec.PodTemplate.Spec.Containers[0].Image = "newer"
		sb.Spec.PodTemplate.Metadata.Labels = map[string]string{"a": "1"}
	})
	f.settle("s")
	assert.Equal(t, image, f.pod("s").Spec.Containers[0].Image)
	assert.Equal(t, "1", f.pod("s").Labels["a"])
}

func TestMultiplePods(t *testing.T) {
	sb := newSandbox("s", withService(new(true)))
	f := newFixture(t, sb, ownedBy(sb, runningPod()), ownedBy(sb, runningPod(podNamed("extra"))))
	f.settle("s")
	ready := f.ready("s")
	assert.Equal(t, "False MultiplePods multiple Pods (2) are controlled by this Sandbox; refusing to choose or create a Pod",
		string(ready.Status)+" "+ready.Reason+" "+ready.Message)
	assert.Equal(t, []string{"create EndpointSlice", "status Sandbox"}, f.wrote(), "no Service, nothing deleted")
	assert.Empty(t, f.slice("s").Endpoints, "nothing is chosen, so nothing is routed")
	assert.Len(t, f.recorder.Events, 1, "one event for the transition")
	assert.Contains(t, <-f.recorder.Events, "Warning MultiplePods multiple Pods (2)")

	require.NoError(t, f.client.Delete(t.Context(), f.pod("extra")))
	f.settle("s")
	assert.Equal(t, "Pod is Ready; Service Exists", f.ready("s").Message)
}

func TestSuspendAndResume(t *testing.T) {
	f := newFixture(t, newSandbox("s", withService(new(true)), withVolume("data")))
	f.settle("s")
	f.run("s")
	f.settle("s")
	f.wrote()

	edit(f, f.sandbox("s"), func(sb *agents.Sandbox) { suspended(sb); sb.Generation = 2 })
	edit(f, f.pod("s"), func(p *corev1.Pod) { p.Finalizers = []string{"test/hold"} }) // stands for the grace period
	_, err := f.reconcile("s")
	require.NoError(t, err)
	assert.Equal(t, []string{"patch EndpointSlice", "delete Pod", "status Sandbox"}, f.wrote(), "Suspending is published first")
	assert.Equal(t, string(proto.RouteSuspending), f.slice("s").Annotations[proto.AnnotationRouteState])
	assert.Equal(t, "Sandbox is suspending", f.ready("s").Message)
	assert.Equal(t, "s", f.sandbox("s").Annotations[proto.AnnotationPodName], "it stays while the pod terminates")

	_, err = f.reconcile("s")
	require.NoError(t, err)
	assert.NotContains(t, f.wrote(), "delete Pod")

	edit(f, f.pod("s"), func(p *corev1.Pod) { p.Finalizers = nil })
	f.settle("s")
	sb := f.sandbox("s")
	assert.Equal(t, "Sandbox is suspended", find(sb, agents.ConditionReady).Message)
	assert.Equal(t, metav1.ConditionTrue, find(sb, agents.ConditionSuspended).Status)
	assert.NotContains(t, sb.Annotations, proto.AnnotationPodName)
	assert.Equal(t, "s", sb.Status.Service, "the Service stays")
	assert.True(t, f.get(&corev1.PersistentVolumeClaim{}, "data-s"), "volumes stay")
	assert.Equal(t, string(proto.RouteSuspended), f.slice("s").Annotations[proto.AnnotationRouteState])
	assert.Empty(t, f.slice("s").Endpoints)

	edit(f, sb, func(sb *agents.Sandbox) { sb.Spec.OperatingMode = agents.OperatingModeRunning })
	f.settle("s")
	f.run("s")
	f.settle("s")
	assert.Equal(t, "Pod is Ready; Service Exists", f.ready("s").Message)
	assert.Equal(t, metav1.ConditionFalse, find(f.sandbox("s"), agents.ConditionSuspended).Status)
	assert.Len(t, f.slice("s").Endpoints, 1)
}

func TestErrorsDoNotStopOtherSteps(t *testing.T) {
	sb := newSandbox("s", withService(new(true)), withVolume("data"))
	f := newFixture(t, sb, runningPod())
	boom := errors.New("boom")
	f.fail = func(verb string, o client.Object) error {
		if _, ok := o.(*corev1.PersistentVolumeClaim); ok {
			return boom
		}
		return nil
	}
	_, err := f.reconcile("s")
	require.ErrorIs(t, err, boom)
	assert.ErrorContains(t, err, "cannot adopt unowned pod")
	assert.Contains(t, f.wrote(), "create Service")
	ready := f.ready("s")
	assert.Equal(t, reasonReconcilerError, ready.Reason)
	assert.Equal(t, "Error seen: "+err.Error(), ready.Message)
}

func TestRouteErrorKeepsSandboxNotReady(t *testing.T) {
	f := newFixture(t, newSandbox("s"))
	f.settle("s")
	f.run("s")
	f.fail = func(verb string, o client.Object) error {
		if f.get(o, routeName("s")) && verb == "patch" {
			return apierrors.NewServiceUnavailable("no")
		}
		return nil
	}
	_, err := f.reconcile("s")
	require.Error(t, err)
	assert.Equal(t, reasonReconcilerError, f.ready("s").Reason)

	f.fail = nil
	f.settle("s")
	assert.Equal(t, metav1.ConditionTrue, f.ready("s").Status)
}

func TestCreatedPodThatCacheDoesNotShow(t *testing.T) {
	f := newFixture(t, newSandbox("s"))
	cache := &hidden{Client: f.client, hide: func(o client.Object) bool { _, ok := o.(*corev1.Pod); return ok }}
	f.shared.client.Client = cache
	_, err := f.reconcile("s")
	require.NoError(t, err)
	f.wrote()
	result, err := f.reconcile("s")
	require.NoError(t, err)
	assert.NotContains(t, f.wrote(), "create Pod", "its own write is remembered")
	assert.LessOrEqual(t, result.RequeueAfter, ownWriteTTL)
	assert.Positive(t, result.RequeueAfter)

	f.now = f.now.Add(ownWriteTTL)
	_, err = f.reconcile("s")
	require.NoError(t, err, "AlreadyExists is answered by a live read")
	assert.Equal(t, "Pod exists with phase: ", f.ready("s").Message)
}

func TestStaleSandboxDoesNotRepeatWrites(t *testing.T) {
	f := newFixture(t, newSandbox("s"))
	stale := f.sandbox("s")
	_, err := f.reconcile("s")
	require.NoError(t, err)
	f.run("s")
	f.shared.client.Client = &hidden{Client: f.client, show: map[string]client.Object{"s": stale}}
	_, err = f.reconcile("s")
	require.NoError(t, err)
	assert.Equal(t, []string{"patch EndpointSlice", "status Sandbox"}, f.wrote())
	_, err = f.reconcile("s")
	require.NoError(t, err)
	assert.Empty(t, f.wrote())
}

func TestWriteBehind(t *testing.T) {
	f := newFixture(t, newSandbox("s"))
	o := DefaultOptions()
	o.WriteBehindWindow = 5 * statusDelay
	f.r = newSandboxReconciler(f.shared, o)
	assert.Equal(t, maxWriteBehind, f.r.writeBehind)
	f.settle("s")
	edit(f, f.sandbox("s"), func(sb *agents.Sandbox) {
		sb.Spec.PodTemplate.Metadata.Labels = map[string]string{"a": "1"}
	})
	f.wrote()
	result, err := f.reconcile("s")
	require.NoError(t, err)
	assert.Equal(t, maxWriteBehind, result.RequeueAfter)
	assert.NotContains(t, f.wrote(), "patch Pod")
	f.now = f.now.Add(maxWriteBehind)
	_, err = f.reconcile("s")
	require.NoError(t, err)
	assert.Contains(t, f.wrote(), "patch Pod")
	assert.Equal(t, "1", f.pod("s").Labels["a"])
}

func TestDeletedSandboxIsLeftToTheGarbageCollector(t *testing.T) {
	f := newFixture(t, newSandbox("s", func(sb *agents.Sandbox) {
		sb.Finalizers = []string{"test/hold"}
		sb.DeletionTimestamp = new(metav1.Now())
	}))
	f.settle("s")
	f.settle("never-there")
	assert.Empty(t, f.wrote())
}

func TestNamespaceThatGoesIsNoError(t *testing.T) {
	f := newFixture(t, newSandbox("s", withVolume("data")))
	going := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "s", errors.New("namespace is being terminated"))
	going.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	f.fail = func(verb string, o client.Object) error {
		if verb == "create" {
			return going
		}
		return nil
	}
	_, err := f.reconcile("s")
	require.NoError(t, err)
	assert.Empty(t, f.wrote())
}

func TestStatusOfDeletedSandboxIsNoError(t *testing.T) {
	f := newFixture(t, newSandbox("s"))
	f.fail = func(verb string, o client.Object) error {
		if verb == "status" {
			return apierrors.NewNotFound(schema.GroupResource{}, "s")
		}
		return nil
	}
	f.settle("s")
}
