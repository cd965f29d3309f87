package e2e

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	extensions "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
	"github.com/dovakiin0/agent-sandbox/test/env"
)

// template makes a template of pods that the node agent runs without a process.
func (s *sandboxes) template(name string, change ...func(*extensions.SandboxTemplate)) *extensions.SandboxTemplate {
	s.Helper()
	template := &extensions.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	template.Spec.PodTemplate = s.bare(name).Spec.PodTemplate
	for _, c := range change {
		c(template)
	}
	s.create(template)
	return template
}

// pool makes a pool and waits until it is full.
func (s *sandboxes) pool(name, template string, replicas int32, change ...func(*extensions.SandboxWarmPool)) *extensions.SandboxWarmPool {
	s.Helper()
	pool := &extensions.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	pool.Spec.Replicas, pool.Spec.TemplateRef.Name = &replicas, template
	for _, c := range change {
		c(pool)
	}
	s.create(pool)
	s.waitFull(pool)
	return pool
}

// waitFull waits until the pool has its members and its status tells so of its present specification. The status alone may not
// have noticed yet that a claim has taken one.
func (s *sandboxes) waitFull(pool *extensions.SandboxWarmPool) {
	s.Helper()
	s.WaitFor(s, pool, "to be full", func() bool {
		return pool.Status.ObservedGeneration == pool.Generation &&
			pool.Status.Replicas == *pool.Spec.Replicas && pool.Status.ReadyReplicas == *pool.Spec.Replicas &&
			len(s.members(pool)) == int(*pool.Spec.Replicas)
	})
}

// claim makes a claim on a pool.
func (s *sandboxes) claim(name, pool string, change ...func(*extensions.SandboxClaim)) *extensions.SandboxClaim {
	s.Helper()
	claim := &extensions.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	claim.Spec.WarmPoolRef.Name = pool
	for _, c := range change {
		c(claim)
	}
	s.create(claim)
	return claim
}

// waitClaim waits until the claim's Ready condition reads so; an empty message is any.
func (s *sandboxes) waitClaim(claim *extensions.SandboxClaim, status metav1.ConditionStatus, reason, message string) {
	s.Helper()
	s.WaitFor(s, claim, "to have Ready "+string(status)+" "+reason+" "+message, func() bool {
		c := meta.FindStatusCondition(claim.Status.Conditions, "Ready")
		return c != nil && c.Status == status && c.Reason == reason && (message == "" || c.Message == message)
	})
}

func (s *sandboxes) waitClaimReady(claim *extensions.SandboxClaim) *agents.Sandbox {
	s.Helper()
	s.waitClaim(claim, metav1.ConditionTrue, "DependenciesReady", "Pod is Ready")
	return read(s, s.bare(claim.Status.Sandbox.Name))
}

func TestClaim(t *testing.T) {
	e := env.Get(t)
	e.StartController(t)
	for name, test := range map[string]func(*sandboxes){
		"warm":                 testWarmClaim,
		"one status":           testOneStatusWrite,
		"cold":                 testColdClaim,
		"volumes rejected":     testVolumesRejected,
		"pool comes later":     testPoolComesLater,
		"template comes later": testTemplateComesLater,
		"invalid metadata":     testInvalidMetadata,
		"name is taken":        testClaimNameIsTaken,
		"pod deleted":          testClaimAfterItsPodIsDeleted,
		"sandbox deleted":      testClaimAfterItsSandboxIsDeleted,
		"delete cascades":      testClaimDeletionCascades,
		"delete foreground":    testDeleteForeground,
		"expiry retain":        testClaimExpiryRetain,
		"time to live zero":    testTimeToLiveZero,
		"preferred zone":       testPreferredZone,
		"ready means routable": testReadyMeansRoutable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(on(t, e))
		})
	}
}

func testWarmClaim(s *sandboxes) {
	s.template("t")
	pool := s.pool("p", "t", 1)
	var members agents.SandboxList
	require.NoError(s, s.Client.List(s.Context(), &members, client.InNamespace(s.ns)))
	require.Len(s, members.Items, 1)
	member := members.Items[0]
	var slices discoveryv1.EndpointSliceList
	require.NoError(s, s.Client.List(s.Context(), &slices, client.InNamespace(s.ns)))
	assert.Empty(s, slices.Items, "nothing leads to a sandbox that nobody has claimed")

	claim := s.claim("c", "p", func(c *extensions.SandboxClaim) {
		c.Labels = map[string]string{proto.LabelCreatedBy: "go-client"}
	})
	sb := s.waitClaimReady(claim)
	assert.Equal(s, member.UID, sb.UID)
	assert.Equal(s, []metav1.OwnerReference{{
		APIVersion: "extensions.agents.x-k8s.io/v1beta1", Kind: "SandboxClaim", Name: "c", UID: claim.UID,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}, sb.OwnerReferences)
	assert.Equal(s, map[string]string{
		proto.LabelLaunchType: "warm", proto.LabelClaimUID: string(claim.UID), proto.LabelCreatedBy: "go-client",
		proto.LabelTemplateRefHash: proto.NameHash("t"),
	}, sb.Labels)
	assert.Equal(s, sb.Name, sb.Annotations[proto.AnnotationPodName])
	assert.Equal(s, sb.Name, claim.Annotations[proto.AnnotationAssignedSandboxName])
	assert.Equal(s, extensions.SandboxClaimStatus{
		Conditions: claim.Status.Conditions,
		Sandbox:    extensions.ClaimedSandbox{Name: sb.Name, PodIPs: sb.Status.PodIPs},
	}, claim.Status)
	assert.Len(s, claim.Status.Conditions, 1)

	pod := s.pod(sb.Name)
	s.WaitFor(s, pod, "to be like a claimed one", func() bool {
		return assert.ObjectsAreEqual(map[string]string{
			proto.LabelSandboxNameHash: proto.NameHash(sb.Name), proto.LabelTemplateRefHash: proto.NameHash("t"),
			proto.LabelCreatedBy: "go-client",
		}, ownLabels(pod)) && pod.Annotations[proto.AnnotationSafeToEvict] == ""
	})
	s.WaitFor(s, claim, "to have its first Ready noted", func() bool { return claim.Annotations[proto.AnnotationClaimFirstReady] != "" })
	for _, key := range []string{proto.AnnotationControllerFirstObserved, proto.AnnotationClaimFirstReady} {
		at, err := time.Parse(time.RFC3339Nano, claim.Annotations[key])
		require.NoError(s, err, key)
		assert.NotZero(s, at.Nanosecond(), "%s has fractions of a second", key)
	}
	s.waitFull(pool)
}

// testOneStatusWrite watches a claim as the SDKs do.
func testOneStatusWrite(s *sandboxes) {
	s.template("t")
	s.pool("p", "t", 1)
	claim := s.claim("c", "p")
	w, err := s.Client.Watch(s.Context(), &extensions.SandboxClaimList{}, &client.ListOptions{
		Namespace: s.ns, FieldSelector: fields.OneTermEqualSelector("metadata.name", "c"),
		Raw: &metav1.ListOptions{ResourceVersion: claim.ResourceVersion},
	})
	require.NoError(s, err)
	defer w.Stop()
	for {
		select {
		case event := <-w.ResultChan():
			require.Equal(s, watch.Modified, event.Type)
			seen := event.Object.(*extensions.SandboxClaim)
			if len(seen.Status.Conditions) == 0 && seen.Status.Sandbox.Name == "" {
				continue
			}
			assert.NotEmpty(s, seen.Status.Sandbox.Name)
			assert.NotEmpty(s, seen.Status.Sandbox.PodIPs)
			assert.True(s, meta.IsStatusConditionTrue(seen.Status.Conditions, "Ready"))
			return
		case <-time.After(patience):
			s.Fatal("no status")
		}
	}
}

func dataVolume(name, size string) agents.PersistentVolumeClaimTemplate {
	return agents.PersistentVolumeClaimTemplate{
		Metadata: agents.PersistentVolumeClaimMetadata{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		},
	}
}

func testColdClaim(s *sandboxes) {
	s.template("t", func(t *extensions.SandboxTemplate) {
		t.Spec.EnvVarsInjectionPolicy = extensions.EnvVarsOverrides
		t.Spec.VolumeClaimTemplatesPolicy = extensions.VolumeClaimTemplatesOverrides
		t.Spec.PodTemplate.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "template"}}
		t.Spec.VolumeClaimTemplates = []agents.PersistentVolumeClaimTemplate{dataVolume("a", "1Mi"), dataVolume("b", "1Mi")}
	})
	s.pool("p", "t", 0)
	claim := s.claim("c", "p", func(c *extensions.SandboxClaim) {
		c.Spec.Env = []extensions.EnvVar{{Name: "A", Value: "claim"}, {Name: "B", Value: "claim"}}
		c.Spec.VolumeClaimTemplates = []agents.PersistentVolumeClaimTemplate{dataVolume("c", "1Mi"), dataVolume("a", "2Mi")}
	})
	sb := s.waitClaimReady(claim)
	assert.Equal(s, "c", sb.Name)
	assert.Equal(s, "cold", sb.Labels[proto.LabelLaunchType])
	var names []string
	for _, v := range sb.Spec.VolumeClaimTemplates {
		names = append(names, v.Metadata.Name+" "+v.Spec.Resources.Requests.Storage().String())
	}
	assert.Equal(s, []string{"a 2Mi", "b 1Mi", "c 1Mi"}, names)
	read(s, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "c-c"}})
	pod := read(s, s.pod("c"))
	assert.Equal(s, []corev1.EnvVar{{Name: "A", Value: "claim"}, {Name: "B", Value: "claim"}}, pod.Spec.Containers[0].Env)
	assert.Empty(s, claim.Annotations[proto.AnnotationAssignedSandboxName])
}

func testVolumesRejected(s *sandboxes) {
	withA := func(t *extensions.SandboxTemplate) {
		t.Spec.VolumeClaimTemplates = []agents.PersistentVolumeClaimTemplate{dataVolume("a", "1Mi")}
	}
	policy := func(p extensions.VolumeClaimTemplatesPolicy) func(*extensions.SandboxTemplate) {
		return func(t *extensions.SandboxTemplate) { t.Spec.VolumeClaimTemplatesPolicy = p }
	}
	asking := func(names ...string) func(*extensions.SandboxClaim) {
		return func(c *extensions.SandboxClaim) {
			for _, name := range names {
				c.Spec.VolumeClaimTemplates = append(c.Spec.VolumeClaimTemplates, dataVolume(name, "1Mi"))
			}
		}
	}
	s.template("no", withA)
	s.template("allowed", withA, policy(extensions.VolumeClaimTemplatesAllowed))
	for _, name := range []string{"no", "allowed"} {
		s.pool(name, name, 0)
	}
	for _, claim := range []*extensions.SandboxClaim{
		s.claim("disallowed", "no", asking("b")),
		s.claim("same", "allowed", asking("a")),
		s.claim("twice", "allowed", asking("b", "b")),
	} {
		s.waitClaim(claim, metav1.ConditionFalse, "VolumeClaimTemplatesError", "")
		s.WaitGone(s, s.bare(claim.Name))
	}
}

func testPoolComesLater(s *sandboxes) {
	s.template("t")
	claim := s.claim("c", "p")
	s.waitClaim(claim, metav1.ConditionFalse, "WarmPoolNotFound", `SandboxWarmPool "p" not found`)
	s.pool("p", "t", 0)
	assert.Equal(s, "c", s.waitClaimReady(claim).Name)
}

func testTemplateComesLater(s *sandboxes) {
	pool := &extensions.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "p"}}
	pool.Spec.Replicas, pool.Spec.TemplateRef.Name = new(int32(0)), "t"
	s.create(pool)
	claim := s.claim("c", "p")
	s.waitClaim(claim, metav1.ConditionFalse, "TemplateNotFound", `SandboxTemplate "t" not found`)
	s.template("t")
	s.waitClaimReady(claim)
}

func testInvalidMetadata(s *sandboxes) {
	s.template("t")
	s.pool("p", "t", 1)
	claim := s.claim("c", "p", func(c *extensions.SandboxClaim) {
		c.Spec.AdditionalPodMetadata.Labels = map[string]string{"app": "sandbox-router"}
	})
	s.waitClaim(claim, metav1.ConditionFalse, "InvalidMetadata", "")
	assert.Empty(s, claim.Status.Sandbox.Name)
	require.NoError(s, s.patch(claim, `{"spec":{"additionalPodMetadata":{"labels":{"app":null,"sandbox.users.io/team":"a"}}}}`))
	sb := s.waitClaimReady(claim)
	pod := s.pod(sb.Name)
	s.WaitFor(s, pod, "to have the label", func() bool { return pod.Labels["sandbox.users.io/team"] == "a" })
}

func testClaimNameIsTaken(s *sandboxes) {
	s.template("t")
	s.pool("p", "t", 0)
	s.create(s.bare("c"))
	claim := s.claim("c", "p")
	s.waitClaim(claim, metav1.ConditionFalse, "ReconcilerError",
		`Error seen: sandbox "c" is not controlled by claim "c". Please use a different claim name or delete the sandbox manually`)
}

func testClaimAfterItsPodIsDeleted(s *sandboxes) {
	s.template("t", func(t *extensions.SandboxTemplate) {
		t.Spec.PodTemplate.Metadata.Annotations = map[string]string{"test.agent-sandbox.dev/ready-after": "300ms"}
	})
	s.pool("p", "t", 1)
	claim := s.claim("c", "p")
	sb := s.waitClaimReady(claim)
	pod := read(s, s.pod(sb.Name))
	require.NoError(s, s.Client.Delete(s.Context(), pod, client.GracePeriodSeconds(0)))
	s.WaitFor(s, claim, "to be not Ready", func() bool { return meta.IsStatusConditionFalse(claim.Status.Conditions, "Ready") })
	again := s.waitClaimReady(claim)
	assert.Equal(s, sb.UID, again.UID)
	assert.NotEqual(s, pod.UID, read(s, s.pod(sb.Name)).UID)
	assert.Equal(s, again.Status.PodIPs, claim.Status.Sandbox.PodIPs)
}

func testClaimAfterItsSandboxIsDeleted(s *sandboxes) {
	s.template("t")
	s.pool("p", "t", 1)
	claim := s.claim("c", "p")
	sb := s.waitClaimReady(claim)
	require.NoError(s, s.Client.Delete(s.Context(), sb))
	s.WaitFor(s, claim, "to have another sandbox", func() bool {
		return claim.Status.Sandbox.Name != "" && claim.Status.Sandbox.Name != sb.Name && meta.IsStatusConditionTrue(claim.Status.Conditions, "Ready")
	})
}

func testClaimDeletionCascades(s *sandboxes) {
	s.template("t")
	pool := s.pool("p", "t", 1)
	claim := s.claim("c", "p")
	sb := s.waitClaimReady(claim)
	require.NoError(s, s.Client.Delete(s.Context(), claim))
	s.WaitGone(s, sb)
	s.WaitGone(s, s.pod(sb.Name))
	s.waitFull(pool)
}

// expire sets the shutdown time of a claim to now.
func (s *sandboxes) expire(claim *extensions.SandboxClaim, policy extensions.ClaimShutdownPolicy) {
	s.Helper()
	require.NoError(s, s.patch(claim, fmt.Sprintf(`{"spec":{"lifecycle":{"shutdownPolicy":%q,"shutdownTime":%q}}}`,
		policy, time.Now().UTC().Format(time.RFC3339))))
}

func testDeleteForeground(s *sandboxes) {
	s.template("t")
	s.pool("p", "t", 1)
	claim := s.claim("c", "p")
	sb := s.waitClaimReady(claim)
	pod := s.pod(sb.Name)
	require.NoError(s, s.patch(pod, `{"metadata":{"finalizers":["test.agent-sandbox.dev/hold"]}}`)) // the controller writes to it too
	s.expire(claim, extensions.ClaimShutdownDeleteForeground)
	s.WaitFor(s, claim, "to be going", func() bool { return !claim.DeletionTimestamp.IsZero() })
	s.WaitFor(s, pod, "to be going", func() bool { return !pod.DeletionTimestamp.IsZero() })
	read(s, claim)
	require.NoError(s, s.patch(pod, `{"metadata":{"finalizers":null}}`))
	s.WaitGone(s, claim)
	s.WaitGone(s, pod)
}

func testClaimExpiryRetain(s *sandboxes) {
	s.template("t")
	s.pool("p", "t", 1)
	claim := s.claim("c", "p")
	sb := s.waitClaimReady(claim)
	s.expire(claim, extensions.ClaimShutdownRetain)
	s.waitClaim(claim, metav1.ConditionFalse, "ClaimExpired", "Claim expired. Sandbox cleanup initiated.")
	s.WaitGone(s, sb)
	s.WaitFor(s, claim, "to have no sandbox", func() bool { return claim.Status.Sandbox.Name == "" })
}

func testTimeToLiveZero(s *sandboxes) {
	s.template("t", func(t *extensions.SandboxTemplate) {
		sb := s.bare("t", ends("true"))
		t.Spec.PodTemplate = sb.Spec.PodTemplate
	})
	s.pool("p", "t", 0)
	claim := s.claim("c", "p", func(c *extensions.SandboxClaim) {
		c.Spec.Lifecycle = &extensions.ClaimLifecycle{TTLSecondsAfterFinished: new(int32(0))}
	})
	s.waitClaim(claim, metav1.ConditionFalse, "ClaimExpired", "Claim expired. Sandbox cleanup initiated.")
	s.WaitGone(s, s.bare("c"))
	s.WaitFor(s, claim, "to have no sandbox", func() bool { return claim.Status.Sandbox.Name == "" })
	finished := meta.FindStatusCondition(claim.Status.Conditions, "Finished")
	require.NotNil(s, finished)
	assert.Equal(s, "True PodSucceeded", string(finished.Status)+" "+finished.Reason)
}

func testPreferredZone(s *sandboxes) {
	s.template("t")
	s.pool("p", "t", 4) // the node agent spreads them over its nodes
	for i, zone := range []string{"zone-b", "zone-a"} {
		claim := s.claim(fmt.Sprintf("c%d", i), "p", func(c *extensions.SandboxClaim) {
			c.Annotations = map[string]string{proto.AnnotationPreferredZone: zone}
		})
		sb := s.waitClaimReady(claim)
		route := s.waitRoute(sb.Name, proto.RouteRunning, 1)
		assert.Equal(s, zone, *route.Endpoints[0].Zone)
	}
}

// testReadyMeansRoutable looks for the route at the moment at which a claim turns Ready.
func testReadyMeansRoutable(s *sandboxes) {
	s.template("t")
	s.pool("p", "t", 5)
	w, err := s.Client.Watch(s.Context(), &extensions.SandboxClaimList{}, client.InNamespace(s.ns))
	require.NoError(s, err)
	defer w.Stop()
	const claims = 8 // some of them cold
	for i := range claims {
		s.claim(fmt.Sprintf("c%d", i), "p")
	}
	checked := map[string]bool{}
	for len(checked) < claims {
		select {
		case event := <-w.ResultChan():
			claim := event.Object.(*extensions.SandboxClaim)
			if !meta.IsStatusConditionTrue(claim.Status.Conditions, "Ready") || checked[claim.Name] {
				continue
			}
			checked[claim.Name] = true
			route := read(s, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: claim.Status.Sandbox.Name + "-route"}})
			assert.Equal(s, claim.Name, route.Annotations[proto.AnnotationRouteClaim])
			require.Len(s, route.Endpoints, 1)
			assert.Equal(s, claim.Status.Sandbox.PodIPs, route.Endpoints[0].Addresses)
			assert.True(s, *route.Endpoints[0].Conditions.Ready)
		case <-time.After(patience):
			s.Fatalf("only %v turned Ready", checked)
		}
	}
}

// TestClaimsSurviveKills kills the controller again and again while it serves claims.
func TestClaimsSurviveKills(t *testing.T) {
	const claims, warm = 30, 15
	s := on(t, env.Get(t))
	controller := s.StartController(t)
	s.template("t")
	pool := s.pool("p", "t", warm)
	served := func() int {
		var list extensions.SandboxClaimList
		require.NoError(t, s.Client.List(t.Context(), &list, client.InNamespace(s.ns)))
		n := 0
		for _, claim := range list.Items {
			if meta.IsStatusConditionTrue(claim.Status.Conditions, "Ready") {
				n++
			}
		}
		return n
	}
	for i := range claims {
		s.claim(fmt.Sprintf("c%d", i), "p")
	}
	for _, soon := range []int{claims / 4, claims / 2, 3 * claims / 4} {
		require.Eventually(t, func() bool { return served() >= soon }, patience, time.Millisecond)
		controller.Kill()
		s.Restart(t, controller)
	}
	require.Eventually(t, func() bool { return served() == claims }, patience, pause)
	s.waitFull(pool)

	s.WaitFor(t, pool, "to be all that is left beside the claims' sandboxes", func() bool {
		var list agents.SandboxList
		require.NoError(t, s.Client.List(t.Context(), &list, client.InNamespace(s.ns)))
		owners := map[string]int{}
		for _, sb := range list.Items {
			owners[metav1.GetControllerOf(&sb).Name]++
		}
		for i := range claims {
			require.Equal(t, 1, owners[fmt.Sprintf("c%d", i)], "one sandbox for each claim")
		}
		return owners["p"] == warm && len(list.Items) == claims+warm
	})
}

// TestClaimBurst has twenty workers of the controller serve two hundred claims from a pool of one hundred.
func TestClaimBurst(t *testing.T) {
	const claims, warm = 200, 100
	s := on(t, env.Get(t))
	controller := s.StartController(t, "--sandbox-claim-concurrent-workers=20", "--sandbox-warm-pool-replenish-delay=1h")
	s.template("t")
	s.pool("p", "t", warm)
	before := conflicts(t, controller.Metrics)

	var wait sync.WaitGroup
	for worker := range 20 {
		wait.Go(func() {
			for i := worker; i < claims; i += 20 {
				claim := &extensions.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprintf("c%d", i)}}
				claim.Spec.WarmPoolRef.Name = "p"
				assert.NoError(t, s.Client.Create(t.Context(), claim))
			}
		})
	}
	wait.Wait()
	var list extensions.SandboxClaimList
	deadline := time.Now().Add(5 * time.Minute)
	for ready := 0; ready < claims; {
		require.True(t, time.Now().Before(deadline), "%d of %d claims are Ready", ready, claims)
		require.NoError(t, s.Client.List(t.Context(), &list, client.InNamespace(s.ns)))
		ready = 0
		for _, claim := range list.Items {
			if meta.IsStatusConditionTrue(claim.Status.Conditions, "Ready") {
				ready++
			}
		}
		time.Sleep(pause)
	}
	owner := map[string]string{} // claim by sandbox
	launches := map[string]int{}
	var sandboxes agents.SandboxList
	require.NoError(t, s.Client.List(t.Context(), &sandboxes, client.InNamespace(s.ns)))
	for _, sb := range sandboxes.Items {
		ref := metav1.GetControllerOf(&sb)
		require.NotNil(t, ref, sb.Name)
		require.Equal(t, "SandboxClaim", ref.Kind, "%s is left in the pool", sb.Name)
		owner[sb.Name] = ref.Name
		launches[sb.Labels[proto.LabelLaunchType]]++
	}
	assert.Equal(t, map[string]int{"warm": warm, "cold": claims - warm}, launches)
	assert.Len(t, owner, claims)
	for _, claim := range list.Items {
		assert.Equal(t, claim.Name, owner[claim.Status.Sandbox.Name])
	}
	assert.Less(t, conflicts(t, controller.Metrics)-before, 2*claims, "conflicts")
	t.Logf("%d conflicts", conflicts(t, controller.Metrics)-before)
}

var conflictMetric = regexp.MustCompile(`(?m)^rest_client_requests_total\{code="409",.*\} (\d+)$`)

// conflicts is how often the API server has answered 409 to a program.
func conflicts(t *testing.T, metrics string) int {
	response, err := http.Get("http://" + metrics + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "rest_client_requests_total")
	total := 0
	for _, match := range conflictMetric.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		total += n
	}
	return total
}
