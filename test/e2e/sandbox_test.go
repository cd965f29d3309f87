package e2e

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/env"
	"github.com/dovakiin0/agent-sandbox/test/stack"
)

// sandboxes is the controller at work on the Sandboxes of one namespace.
type sandboxes struct {
	*testing.T
	*env.Env
	ns string
}

// on says which of the shared tests a subtest is, with a namespace of its own.
func on(t *testing.T, e *env.Env) *sandboxes { return &sandboxes{T: t, Env: e, ns: e.Namespace(t)} }

// bare returns a Sandbox of a pod that the node agent runs without a process.
func (s *sandboxes) bare(name string, change ...func(*agents.Sandbox)) *agents.Sandbox {
	sb := &agents.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	sb.Spec.PodTemplate.Spec.Containers = []corev1.Container{{
		Name: "main", Image: "pause", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8888}},
	}}
	for _, c := range change {
		c(sb)
	}
	return sb
}

func (s *sandboxes) create(o client.Object) {
	s.Helper()
	require.NoError(s, s.Client.Create(s.Context(), o))
}

// patch makes a JSON merge patch.
func (s *sandboxes) patch(o client.Object, patch string) error {
	return s.Client.Patch(s.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// waitReady waits until the Ready condition reads so, and returns the Sandbox.
func (s *sandboxes) waitReady(name string, status metav1.ConditionStatus, reason, message string) *agents.Sandbox {
	s.Helper()
	sb := s.bare(name)
	s.WaitFor(s, sb, "to have Ready "+string(status)+" "+reason+" "+message, func() bool {
		c := meta.FindStatusCondition(sb.Status.Conditions, "Ready")
		return c != nil && c.Status == status && c.Reason == reason && c.Message == message && c.ObservedGeneration == sb.Generation
	})
	return sb
}

func (s *sandboxes) waitRunning(name string) *agents.Sandbox {
	s.Helper()
	return s.waitReady(name, metav1.ConditionTrue, "DependenciesReady", "Pod is Ready")
}

func (s *sandboxes) pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
}

// read gets an object by the name it has.
func read[T client.Object](s *sandboxes, o T) T {
	s.Helper()
	require.NoError(s, s.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o))
	return o
}

// waitRoute waits until the published route has this state and so many endpoints.
func (s *sandboxes) waitRoute(sandbox string, state proto.RouteState, endpoints int) *discoveryv1.EndpointSlice {
	s.Helper()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: sandbox + "-route"}}
	s.WaitFor(s, slice, "to be "+string(state), func() bool {
		return slice.Annotations[proto.AnnotationRouteState] == string(state) && len(slice.Endpoints) == endpoints
	})
	return slice
}

func hashLabel(name string) map[string]string {
	return map[string]string{"agents.x-k8s.io/sandbox-name-hash": proto.NameHash(name)}
}

// ownLabels is the labels of a pod without those that the API server copies from its node.
func ownLabels(pod *corev1.Pod) map[string]string {
	labels := maps.Clone(pod.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, "topology.kubernetes.io/") })
	return labels
}

func controllerRef(sb *agents.Sandbox) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: "agents.x-k8s.io/v1beta1", Kind: "Sandbox", Name: sb.Name, UID: sb.UID,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}
}

func TestSandbox(t *testing.T) {
	e := env.Get(t)
	e.StartController(t)
	for name, test := range map[string]func(*sandboxes){
		"status":              testSandboxStatus,
		"service and volumes": testServiceAndVolumes,
		"volumes immutable":   testVolumesAreImmutable,
		"pod deleted":         testPodIsRecreated,
		"suspend and resume":  testSuspendAndResume,
		"finished":            testFinishedPod,
		"expiry retain":       testExpiryRetain,
		"expiry delete":       testExpiryDelete,
		"adoption":            testAdoption,
		"metadata":            testMetadata,
		"deletion":            testDeletionCascades,
		"templates":           testTemplate,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(on(t, e))
		})
	}
}

func TestControllerHandsOver(t *testing.T) {
	e := env.Get(t)
	s := on(t, e)
	elect := []string{"--leader-elect=true", "--leader-election-namespace=" + s.ns}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "a3317529.agent-sandbox.x-k8s.io"}}
	held := func() bool { return lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" }

	first := e.StartController(t, elect...)
	s.WaitFor(t, lease, "to be held", held)
	leader := *lease.Spec.HolderIdentity
	e.StartController(t, elect...)
	s.create(s.bare("a"))
	s.waitRunning("a")
	assert.Equal(t, leader, *read(s, lease).Spec.HolderIdentity)

	stopped := time.Now()
	first.Stop(stack.StopGrace)
	s.WaitFor(t, lease, "to change hands", func() bool { return held() && *lease.Spec.HolderIdentity != leader })
	assert.Less(t, time.Since(stopped), 15*time.Second, "the lease is released, not left to run out")
	s.create(s.bare("b"))
	s.waitRunning("b")
}

func testSandboxStatus(s *sandboxes) {
	s.create(s.bare("s"))
	sb := s.waitRunning("s")
	pod := read(s, s.pod("s"))

	status := *sb.Status.DeepCopy()
	for i := range status.Conditions {
		assert.False(s, status.Conditions[i].LastTransitionTime.IsZero())
		status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	assert.Equal(s, agents.SandboxStatus{
		LabelSelector: "agents.x-k8s.io/sandbox-name-hash=" + proto.NameHash("s"),
		PodIPs:        []string{pod.Status.PodIP},
		NodeName:      pod.Spec.NodeName,
		Conditions: []metav1.Condition{
			{Type: "Suspended", Status: "False", Reason: "NotSuspended", Message: "Sandbox is not suspended", ObservedGeneration: 1},
			{Type: "PodScheduled", Status: "True", Reason: "PodScheduled", ObservedGeneration: 1},
			{Type: "Ready", Status: "True", Reason: "DependenciesReady", Message: "Pod is Ready", ObservedGeneration: 1},
		},
	}, status)
	assert.Equal(s, "s", sb.Annotations["agents.x-k8s.io/pod-name"])
	assert.Equal(s, hashLabel("s"), ownLabels(pod))
	assert.Equal(s, controllerRef(sb), pod.OwnerReferences)

	slice := s.waitRoute("s", proto.RouteRunning, 1)
	assert.Equal(s, controllerRef(sb), slice.OwnerReferences)
	endpoint := slice.Endpoints[0]
	assert.Equal(s, []string{pod.Status.PodIP}, endpoint.Addresses)
	assert.Equal(s, pod.UID, endpoint.TargetRef.UID)
	assert.Equal(s, pod.Spec.NodeName, *endpoint.NodeName)
	assert.Equal(s, strings.Replace(pod.Spec.NodeName, "node", "zone", 1), *endpoint.Zone)
	assert.True(s, *endpoint.Conditions.Ready)
	assert.Equal(s, int32(8888), *slice.Ports[0].Port)
}

func withVolume(sb *agents.Sandbox) {
	sb.Spec.VolumeClaimTemplates = []agents.PersistentVolumeClaimTemplate{{
		Metadata: agents.PersistentVolumeClaimMetadata{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}}
}

func withService(sb *agents.Sandbox) { sb.Spec.Service = new(true) }

func testServiceAndVolumes(s *sandboxes) {
	s.create(s.bare("s", withService, withVolume))
	sb := s.waitReady("s", metav1.ConditionTrue, "DependenciesReady", "Pod is Ready; Service Exists")
	assert.Equal(s, "s", sb.Status.Service)
	assert.Equal(s, "s."+s.ns+".svc.cluster.local", sb.Status.ServiceFQDN)

	svc := read(s, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "s"}})
	assert.Equal(s, controllerRef(sb), svc.OwnerReferences)
	assert.Equal(s, hashLabel("s"), svc.Labels)
	assert.Equal(s, hashLabel("s"), svc.Spec.Selector)
	assert.Equal(s, corev1.ClusterIPNone, svc.Spec.ClusterIP)
	require.Len(s, svc.Spec.Ports, 1)
	assert.Equal(s, "http", svc.Spec.Ports[0].Name)

	pvc := read(s, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "data-s"}})
	assert.Equal(s, controllerRef(sb), pvc.OwnerReferences)
	assert.Equal(s, hashLabel("s"), pvc.Labels)

	require.NoError(s, s.patch(sb, `{"spec":{"service":false}}`))
	sb = s.waitRunning("s")
	s.WaitGone(s, svc)
	assert.Empty(s, sb.Status.Service)
	assert.Empty(s, sb.Status.ServiceFQDN)
}

func testVolumesAreImmutable(s *sandboxes) {
	s.create(s.bare("s", withVolume))
	assert.ErrorContains(s, s.patch(s.bare("s"), `{"spec":{"volumeClaimTemplates":null}}`), "volumeClaimTemplates is immutable")
	s.create(s.bare("none"))
	assert.ErrorContains(s, s.patch(s.bare("none"), `{"spec":{"volumeClaimTemplates":[{"spec":{}}]}}`), "volumeClaimTemplates is immutable")
	require.NoError(s, s.patch(s.bare("s"), `{"spec":{"shutdownPolicy":"Delete"}}`))
}

func testPodIsRecreated(s *sandboxes) {
	s.create(s.bare("s"))
	s.waitRunning("s")
	first := read(s, s.pod("s"))
	require.NoError(s, s.Client.Delete(s.Context(), first, client.GracePeriodSeconds(0)))
	second := s.pod("s")
	s.WaitFor(s, second, "to be another", func() bool { return second.UID != first.UID })
	sb := s.bare("s")
	s.WaitFor(s, sb, "to be Ready with the new pod", func() bool {
		return meta.IsStatusConditionTrue(sb.Status.Conditions, "Ready") && read(s, second).Status.PodIP == sb.Status.PodIPs[0]
	})
	slice := s.waitRoute("s", proto.RouteRunning, 1)
	assert.Equal(s, second.UID, slice.Endpoints[0].TargetRef.UID)
}

func testSuspendAndResume(s *sandboxes) {
	s.create(s.bare("s", withService, withVolume, func(sb *agents.Sandbox) {
		sb.Spec.PodTemplate.Spec.TerminationGracePeriodSeconds = new(int64(1))
	}))
	sb := s.waitReady("s", metav1.ConditionTrue, "DependenciesReady", "Pod is Ready; Service Exists")
	suspendedSince := meta.FindStatusCondition(sb.Status.Conditions, "Suspended").LastTransitionTime
	first := read(s, s.pod("s"))

	require.NoError(s, s.patch(sb, `{"spec":{"operatingMode":"Suspended"}}`))
	sb = s.waitReady("s", metav1.ConditionFalse, "SandboxSuspended", "Sandbox is suspended")
	s.WaitGone(s, first)
	c := meta.FindStatusCondition(sb.Status.Conditions, "Suspended")
	assert.Equal(s, "True PodTerminated Pod has been terminated. Sandbox is suspended", string(c.Status)+" "+c.Reason+" "+c.Message)
	assert.False(s, c.LastTransitionTime.Before(&suspendedSince))
	assert.NotContains(s, sb.Annotations, "agents.x-k8s.io/pod-name")
	assert.Empty(s, sb.Status.PodIPs)
	assert.Equal(s, "s", sb.Status.Service)
	assert.Nil(s, meta.FindStatusCondition(sb.Status.Conditions, "PodScheduled"))
	s.waitRoute("s", proto.RouteSuspended, 0)
	pvc := read(s, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "data-s"}})
	assert.True(s, pvc.DeletionTimestamp.IsZero())

	require.NoError(s, s.patch(sb, `{"spec":{"operatingMode":"Running"}}`))
	sb = s.waitReady("s", metav1.ConditionTrue, "DependenciesReady", "Pod is Ready; Service Exists")
	c = meta.FindStatusCondition(sb.Status.Conditions, "Suspended")
	assert.Equal(s, "False NotSuspended Sandbox is not suspended", string(c.Status)+" "+c.Reason+" "+c.Message)
	assert.NotEqual(s, first.UID, read(s, s.pod("s")).UID)
	assert.Equal(s, "s", sb.Annotations["agents.x-k8s.io/pod-name"])
	s.waitRoute("s", proto.RouteRunning, 1)
}

// ends gives the Sandbox a pod that runs a command and ends.
func ends(command ...string) func(*agents.Sandbox) {
	return func(sb *agents.Sandbox) {
		sb.Spec.PodTemplate.Metadata.Annotations = map[string]string{"test.agent-sandbox.dev/run": "true"}
		sb.Spec.PodTemplate.Spec.RestartPolicy = corev1.RestartPolicyNever
		sb.Spec.PodTemplate.Spec.Containers[0].Command = command
	}
}

func testFinishedPod(s *sandboxes) {
	s.create(s.bare("good", ends("true")))
	s.create(s.bare("bad", ends("false")))
	good := s.waitReady("good", metav1.ConditionFalse, "PodSucceeded", "Pod completed successfully")
	bad := s.waitReady("bad", metav1.ConditionFalse, "PodFailed", "Pod failed")
	for sb, reason := range map[*agents.Sandbox]string{good: "PodSucceeded", bad: "PodFailed"} {
		c := meta.FindStatusCondition(sb.Status.Conditions, "Finished")
		require.NotNil(s, c)
		assert.Equal(s, "True "+reason, string(c.Status)+" "+c.Reason)
		s.waitRoute(sb.Name, proto.RouteFinished, 0)
	}
	pod := read(s, s.pod("good"))
	require.NoError(s, s.Client.Delete(s.Context(), pod, client.GracePeriodSeconds(0)))
	next := s.pod("good")
	s.WaitFor(s, next, "to be another", func() bool { return next.UID != pod.UID })
}

func testExpiryRetain(s *sandboxes) {
	s.create(s.bare("s", withService, withVolume, ends("true")))
	sb := s.waitReady("s", metav1.ConditionFalse, "PodSucceeded", "Pod completed successfully")
	require.NoError(s, s.patch(sb, `{"spec":{"shutdownTime":"`+time.Now().UTC().Format(time.RFC3339)+`"}}`))
	sb = s.waitReady("s", metav1.ConditionFalse, "SandboxExpired", "Sandbox has expired")
	s.WaitGone(s, s.pod("s"))
	s.WaitGone(s, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "s"}})
	s.WaitFor(s, sb, "to have nothing but conditions", func() bool {
		return assert.ObjectsAreEqual(agents.SandboxStatus{Conditions: sb.Status.Conditions}, sb.Status)
	})
	assert.Equal(s, "PodSucceeded", meta.FindStatusCondition(sb.Status.Conditions, "Finished").Reason)
	assert.NotNil(s, meta.FindStatusCondition(sb.Status.Conditions, "Suspended"))
	assert.Nil(s, meta.FindStatusCondition(sb.Status.Conditions, "PodScheduled"))
	read(s, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "data-s"}})
	s.waitRoute("s", proto.RouteExpired, 0)
}

func testExpiryDelete(s *sandboxes) {
	s.create(s.bare("s"))
	sb := s.waitRunning("s")
	require.NoError(s, s.patch(sb, `{"spec":{"shutdownPolicy":"Delete","shutdownTime":"`+time.Now().UTC().Format(time.RFC3339)+`"}}`))
	s.WaitGone(s, s.bare("s"))
	s.WaitGone(s, s.pod("s"))
}

func testAdoption(s *sandboxes) {
	ready := func(pod *corev1.Pod) {
		s.create(pod)
		s.WaitFor(s, pod, "to run", func() bool { return pod.Status.Phase == corev1.PodRunning })
	}
	spec := s.bare("x").Spec.PodTemplate.Spec
	mine := s.pod("mine")
	mine.Spec, mine.Labels = spec, map[string]string{"agents.x-k8s.io/adoptable": "true"}
	ready(mine)
	s.create(s.bare("s", func(sb *agents.Sandbox) {
		sb.Annotations = map[string]string{"agents.x-k8s.io/pod-name": "mine"}
	}))
	sb := s.waitRunning("s")
	pod := read(s, s.pod("mine"))
	assert.Equal(s, mine.UID, pod.UID)
	assert.Equal(s, controllerRef(sb), pod.OwnerReferences)
	assert.Equal(s, proto.NameHash("s"), pod.Labels["agents.x-k8s.io/sandbox-name-hash"])

	adoptable := metav1.ObjectMeta{Namespace: s.ns, Labels: map[string]string{"agents.x-k8s.io/adoptable": "true"}}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: adoptable}
	withVolume(sb)
	pvc.Name, pvc.Spec = "data-all", sb.Spec.VolumeClaimTemplates[0].Spec
	svc := &corev1.Service{ObjectMeta: adoptable, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "old"}, Ports: []corev1.ServicePort{{Name: "old", Port: 1}},
	}}
	svc.Name = "all"
	s.create(pvc)
	s.create(svc)
	s.create(s.bare("all", withService, withVolume))
	sb = s.waitReady("all", metav1.ConditionTrue, "DependenciesReady", "Pod is Ready; Service Exists")
	assert.Equal(s, controllerRef(sb), read(s, pvc).OwnerReferences)
	assert.Equal(s, controllerRef(sb), read(s, svc).OwnerReferences)
	assert.Equal(s, hashLabel("all"), svc.Spec.Selector)
	assert.Equal(s, "http", svc.Spec.Ports[0].Name)

	squatter := s.pod("squatted")
	squatter.Spec = spec
	ready(squatter)
	s.create(s.bare("squatted"))
	s.waitReady("squatted", metav1.ConditionFalse, "ReconcilerError", `Error seen: cannot adopt unowned pod "squatted": `+
		`missing required pool authorization label ("agents.x-k8s.io/adoptable") or sandbox tracking label ("agents.x-k8s.io/sandbox-name-hash")`)
	assert.Empty(s, read(s, s.pod("squatted")).OwnerReferences)
	s.waitRoute("squatted", proto.RouteStarting, 0)
}

func testMetadata(s *sandboxes) {
	s.create(s.bare("s", func(sb *agents.Sandbox) {
		sb.Spec.PodTemplate.Metadata = agents.PodMetadata{
			Labels:      map[string]string{"a": "1", "b": "1", "agents.x-k8s.io/claim-uid": "x"},
			Annotations: map[string]string{"n": "1"},
		}
	}))
	sb := s.waitRunning("s")
	pod := read(s, s.pod("s"))
	assert.Equal(s, map[string]string{"a": "1", "b": "1", "agents.x-k8s.io/sandbox-name-hash": proto.NameHash("s")}, ownLabels(pod))
	assert.Equal(s, "a,b", pod.Annotations["agents.x-k8s.io/propagated-labels"])
	require.NoError(s, s.patch(sb, `{"spec":{"podTemplate":{"metadata":{"labels":{"a":"2","b":null}}}}}`))
	s.WaitFor(s, pod, "to follow the template", func() bool { return pod.Labels["a"] == "2" && pod.Labels["b"] == "" })
	assert.Equal(s, "a", pod.Annotations["agents.x-k8s.io/propagated-labels"])
}

func testDeletionCascades(s *sandboxes) {
	s.create(s.bare("s", withService, withVolume))
	sb := s.waitReady("s", metav1.ConditionTrue, "DependenciesReady", "Pod is Ready; Service Exists")
	slice := s.waitRoute("s", proto.RouteRunning, 1)
	require.NoError(s, s.Client.Delete(s.Context(), sb))
	s.WaitGone(s, sb)
	s.WaitGone(s, s.pod("s"))
	s.WaitGone(s, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "s"}})
	s.WaitGone(s, slice)
}

func testTemplate(s *sandboxes) {
	template := &extensions.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "t"}}
	template.Spec.PodTemplate = s.bare("x").Spec.PodTemplate
	s.create(template)
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "t-network-policy"}}
	s.WaitFor(s, policy, "to exist", func() bool { return true })
	assert.Equal(s, map[string]string{"agents.x-k8s.io/sandbox-template-ref-hash": proto.NameHash("t")}, policy.Spec.PodSelector.MatchLabels)
	assert.Equal(s, []networkingv1.PolicyType{"Ingress", "Egress"}, policy.Spec.PolicyTypes)
	assert.Len(s, policy.Spec.Ingress, 1)
	assert.Len(s, policy.Spec.Egress, 1)
	s.WaitFor(s, template, "to be labelled", func() bool {
		return template.Labels["agents.x-k8s.io/sandbox-template-ref-hash"] == proto.NameHash("t")
	})

	require.NoError(s, s.patch(policy, `{"spec":{"egress":null}}`))
	s.WaitFor(s, policy, "to be repaired", func() bool { return len(policy.Spec.Egress) == 1 })
	require.NoError(s, s.patch(template, `{"spec":{"networkPolicy":{"egress":[{"ports":[{"port":53,"protocol":"UDP"}]}]}}}`))
	s.WaitFor(s, policy, "to have the template's own rules", func() bool {
		return len(policy.Spec.Ingress) == 0 && len(policy.Spec.Egress) == 1 && len(policy.Spec.Egress[0].To) == 0
	})
	require.NoError(s, s.patch(template, `{"spec":{"networkPolicyManagement":"Unmanaged"}}`))
	s.WaitGone(s, policy)
	require.NoError(s, s.patch(template, `{"spec":{"networkPolicyManagement":"Managed"}}`))
	s.WaitFor(s, policy, "to be back", func() bool { return true })
	require.NoError(s, s.Client.Delete(s.Context(), template))
	s.WaitGone(s, policy)
}
