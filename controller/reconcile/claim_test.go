package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

var (
	warmWrites = []string{
		"update SandboxClaim",  // stamp and commitment
		"patch Sandbox",        // adoption
		"create EndpointSlice", // Ready means routable
		"status SandboxClaim",  // name, addresses and Ready at once
		"update SandboxClaim",  // time of the first Ready
	}
	coldWrites = []string{"update SandboxClaim", "create Sandbox", "status SandboxClaim"}
)

// must reconciles without an error, twice if the first pass leaves something for later.
func (f *claimFixture) must(name string) time.Duration {
	f.Helper()
	result, err := f.reconcile(name)
	if result.Priority != nil {
		result, err = f.reconcile(name)
	}
	require.NoError(f, err)
	return result.RequeueAfter
}

// next returns the note of the next event, "" when there is none.
func (f *fixture) nextEvent() string {
	select {
	case note := <-f.recorder.Events:
		return note
	default:
		return ""
	}
}

func TestWarmClaim(t *testing.T) {
	member := newPoolMember("pool-abcde", readyAt("10.128.0.9"))
	template := newTemplate(func(x *ext.SandboxTemplate) {
		x.Spec.PodTemplate.Metadata.Labels = map[string]string{"team": "a"}
	})
	claim := newClaim("c", func(c *ext.SandboxClaim) {
		c.Labels = map[string]string{proto.LabelCreatedBy: "go-client"}
		c.Annotations = map[string]string{proto.AnnotationTraceContext: `{"traceparent":"00-1-2-01"}`}
		c.Spec.AdditionalPodMetadata.Annotations = map[string]string{"note": "x"}
	})
	f := newClaimFixture(t, template, newPool(), member, podOf(member), claim)
	assert.Zero(t, f.must("c"))
	assert.Equal(t, []string{"update SandboxClaim"}, f.background, "the time of the first Ready")
	assert.Equal(t, warmWrites, f.wrote())

	got := f.claim("c")
	assert.Equal(t, "pool-abcde", got.Annotations[proto.AnnotationAssignedSandboxName])
	assert.Regexp(t, `^2026-08-22T10:00:00(\.\d+)?Z$`, got.Annotations[proto.AnnotationControllerFirstObserved])
	assert.Equal(t, "2026-08-22T10:00:00Z", got.Annotations[proto.AnnotationClaimFirstReady])
	assert.Equal(t, "True DependenciesReady Pod is Ready", f.ready("c"))
	assert.Equal(t, ext.ClaimedSandbox{Name: "pool-abcde", PodIPs: []string{"10.128.0.9"}}, got.Status.Sandbox)

	sb := f.sandbox("pool-abcde")
	assert.Equal(t, map[string]string{
		proto.LabelLaunchType: "warm", proto.LabelClaimUID: "uid-of-c", proto.LabelCreatedBy: "go-client",
		proto.LabelTemplateRefHash: proto.NameHash("tmpl"),
	}, sb.Labels)
	assert.Equal(t, []metav1.OwnerReference{{
		APIVersion: "extensions.agents.x-k8s.io/v1beta1", Kind: "SandboxClaim", Name: "c", UID: "uid-of-c",
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}, sb.OwnerReferences)
	assert.Equal(t, map[string]string{
		proto.AnnotationPodName: "pool-abcde", proto.AnnotationTemplateRef: "tmpl",
		proto.AnnotationTraceContext: `{"traceparent":"00-1-2-01"}`,
	}, sb.Annotations)
	assert.Equal(t, agents.PodMetadata{
		Labels: map[string]string{
			"team": "a", proto.LabelClaimUID: "uid-of-c", proto.LabelCreatedBy: "go-client", proto.LabelTemplateRefHash: proto.NameHash("tmpl"),
		},
		Annotations: map[string]string{"note": "x"}, // and no mark that lets the autoscaler evict it
	}, sb.Spec.PodTemplate.Metadata)
	assert.Equal(t, "c", f.slice("pool-abcde").Annotations[proto.AnnotationRouteClaim])
	assert.Equal(t, `Normal SandboxAdopted Adopted warm pool Sandbox "pool-abcde"`, f.nextEvent())

	assert.Zero(t, f.must("c"))
	assert.Empty(t, f.wrote(), "nothing left to do")
}

func TestColdClaim(t *testing.T) {
	volume := agents.PersistentVolumeClaimTemplate{Metadata: agents.PersistentVolumeClaimMetadata{Name: "data"}}
	template := newTemplate(func(x *ext.SandboxTemplate) {
		x.Spec.EnvVarsInjectionPolicy = ext.EnvVarsAllowed
		x.Spec.VolumeClaimTemplatesPolicy = ext.VolumeClaimTemplatesAllowed
		x.Spec.Service = new(true)
	})
	ready := newPoolMember("pool-abcde", readyAt("10.128.0.9"))
	claim := newClaim("c", func(c *ext.SandboxClaim) {
		c.Labels = map[string]string{proto.LabelCreatedBy: "someone"}
		c.Spec.Env = []ext.EnvVar{{Name: "A", Value: "1"}}
		c.Spec.VolumeClaimTemplates = volumeTemplates{volume}
	})
	f := newClaimFixture(t, template, newPool(), ready, podOf(ready), claim)
	assert.Zero(t, f.must("c"))
	assert.Equal(t, coldWrites, f.wrote(), "variables and volumes go past the pool")

	sb := f.sandbox("c")
	own := map[string]string{
		proto.LabelClaimUID: "uid-of-c", proto.LabelCreatedBy: "someone", proto.LabelTemplateRefHash: proto.NameHash("tmpl"),
	}
	assert.Equal(t, merged(own, map[string]string{proto.LabelLaunchType: "cold"}), sb.Labels)
	assert.Equal(t, "tmpl", sb.Annotations[proto.AnnotationTemplateRef])
	assert.Equal(t, agents.PodMetadata{Labels: own}, sb.Spec.PodTemplate.Metadata)
	assert.Equal(t, []corev1.EnvVar{{Name: "A", Value: "1"}}, sb.Spec.PodTemplate.Spec.Containers[0].Env)
	assert.Equal(t, volumeTemplates{volume}, sb.Spec.VolumeClaimTemplates)
	assert.True(t, *sb.Spec.Service)
	assert.False(t, *sb.Spec.PodTemplate.Spec.AutomountServiceAccountToken)
	assert.True(t, controlledBy(sb, "uid-of-c"))
	assert.Equal(t, "False SandboxNotReady Sandbox is not ready", f.ready("c"))
	assert.Equal(t, "c", f.claim("c").Status.Sandbox.Name)
	assert.Equal(t, `Normal SandboxProvisioned Created Sandbox "c"`, f.nextEvent())

	readyAt("10.128.0.7")(sb)
	require.NoError(t, f.client.Status().Update(t.Context(), sb))
	require.NoError(t, f.client.Create(t.Context(), podOf(sb)))
	f.wrote()
	f.must("c")
	assert.Equal(t, []string{"create EndpointSlice", "status SandboxClaim", "update SandboxClaim"}, f.wrote())
	assert.Equal(t, "True DependenciesReady Pod is Ready", f.ready("c"))
}

// Where the sandbox of a claim comes from, in the order in which it is looked for.
func TestClaimFindsItsSandbox(t *testing.T) {
	assigned := func(name string) func(*ext.SandboxClaim) {
		return func(c *ext.SandboxClaim) {
			c.Annotations = map[string]string{proto.AnnotationAssignedSandboxName: name}
		}
	}
	labelled := func(name string) func(*ext.SandboxClaim) {
		return func(c *ext.SandboxClaim) { c.Labels = map[string]string{proto.LabelAssignedSandboxName: name} }
	}
	bound := func(name string) func(*ext.SandboxClaim) {
		return func(c *ext.SandboxClaim) { c.Status.Sandbox.Name = name }
	}
	mine := controlledByClaim(newClaim("c"))
	theirs := controlledByClaim(newClaim("other"))
	free := func(name string) *agents.Sandbox { return newPoolMember(name, readyAt("10.128.0.9")) }

	for name, c := range map[string]struct {
		claim     *ext.SandboxClaim
		sandboxes []*agents.Sandbox
		want      string // the claim's sandbox afterwards
		assigned  string
		fault     string
	}{
		"status":                       {newClaim("c", bound("a")), []*agents.Sandbox{newPoolMember("a", mine), free("b")}, "a", "", ""},
		"status, not ours any more":    {newClaim("c", bound("a")), []*agents.Sandbox{newPoolMember("a", theirs), free("b")}, "b", "b", ""},
		"status, gone":                 {newClaim("c", bound("a")), []*agents.Sandbox{free("b")}, "b", "b", ""},
		"commitment, done":             {newClaim("c", assigned("a")), []*agents.Sandbox{newPoolMember("a", mine), free("b")}, "a", "a", ""},
		"commitment, to be done":       {newClaim("c", assigned("a")), []*agents.Sandbox{free("b"), newPoolMember("a")}, "a", "a", ""},
		"commitment, went to another":  {newClaim("c", assigned("a")), []*agents.Sandbox{newPoolMember("a", theirs), free("b")}, "b", "b", ""},
		"commitment, gone":             {newClaim("c", assigned("a")), []*agents.Sandbox{free("b")}, "b", "b", ""},
		"commitment, gone, none left":  {newClaim("c", assigned("a")), nil, "c", "", ""},
		"commitment to another pool's": {newClaim("c", assigned("a")), []*agents.Sandbox{newPoolMember("a", func(sb *agents.Sandbox) { sb.OwnerReferences[0].Name = "other" })}, "c", "", ""},
		"commitment to a stray":        {newClaim("c", assigned("a")), []*agents.Sandbox{newPoolMember("a", func(sb *agents.Sandbox) { sb.OwnerReferences = nil })}, "c", "", ""},
		"old commitment, done":         {newClaim("c", labelled("a")), []*agents.Sandbox{newPoolMember("a", mine)}, "a", "a", ""},
		"old commitment, to be done":   {newClaim("c", labelled("a")), []*agents.Sandbox{free("a")}, "a", "", ""},
		"old commitment, gone":         {newClaim("c", labelled("a")), []*agents.Sandbox{free("b")}, "b", "b", ""},
		"own name":                     {newClaim("c"), []*agents.Sandbox{newPoolMember("c", mine), free("b")}, "c", "", ""},
		"own name is taken":            {newClaim("c"), []*agents.Sandbox{newPoolMember("c", theirs), free("b")}, "", "", `False ReconcilerError Error seen: sandbox "c" is not controlled by claim "c". Please use a different claim name or delete the sandbox manually`},
		"pool":                         {newClaim("c"), []*agents.Sandbox{free("b")}, "b", "b", ""},
		"new":                          {newClaim("c"), nil, "c", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{newTemplate(), newPool(), c.claim}
			for _, sb := range c.sandboxes {
				objects = append(objects, sb, podOf(sb))
			}
			f := newClaimFixture(t, objects...)
			_, err := f.reconcile("c")
			got := f.claim("c")
			assert.Equal(t, c.want, got.Status.Sandbox.Name)
			assert.Equal(t, c.assigned, got.Annotations[proto.AnnotationAssignedSandboxName])
			if c.fault != "" {
				require.Error(t, err, "backs off")
				assert.Equal(t, c.fault, f.ready("c"))
				return
			}
			require.NoError(t, err)
			owned := 0
			for _, sb := range f.sandboxes() {
				if controlledBy(&sb, "uid-of-c") {
					owned++
					assert.Equal(t, c.want, sb.Name)
				}
			}
			assert.Equal(t, 1, owned)
		})
	}
}

func TestCandidateCheck(t *testing.T) {
	oldImage := func(sb *agents.Sandbox) {
		sb.Spec.PodTemplate.Spec.Containers[0].Image = "runtime:0"
		sb.Labels[proto.LabelTemplateHash] = "old"
	}
	other := func(change func(*agents.Sandbox)) *agents.Sandbox {
		return newPoolMember("first", readyAt("10.128.0.9"), change)
	}
	finished := func(sb *agents.Sandbox) {
		starting("10.128.0.9")(sb)
		sb.Status.Conditions = append(sb.Status.Conditions, metav1.Condition{Type: "Finished", Status: "True", Reason: reasonPodFailed})
	}
	for name, c := range map[string]struct {
		pool   *ext.SandboxWarmPool
		first  *agents.Sandbox
		want   string
		queued bool // the first one is in the queue afterwards
	}{
		"ready":              {newPool(), other(func(*agents.Sandbox) {}), "first", false},
		"not ready, address": {newPool(), other(starting("10.128.0.9")), "second", true},
		"no address":         {newPool(), other(func(sb *agents.Sandbox) { sb.Status.PodIPs = nil }), "second", true},
		"finished":           {newPool(), other(finished), "second", true},
		"deleting": {newPool(), other(func(sb *agents.Sandbox) {
			sb.DeletionTimestamp, sb.Finalizers = new(metav1.Now()), []string{"example.com/x"}
		}), "second", false},
		"no pool label":              {newPool(), other(func(sb *agents.Sandbox) { delete(sb.Labels, proto.LabelWarmPool) }), "second", false},
		"wrong owner":                {newPool(), other(controlledByClaim(newClaim("x"))), "second", false},
		"wrong pool":                 {newPool(), other(func(sb *agents.Sandbox) { sb.OwnerReferences[0].Name = "other" }), "second", false},
		"old, pool replenishes":      {newPool(), other(oldImage), "first", false},
		"old, pool recreates":        {newPool(recreate), other(oldImage), "second", false},
		"other hash, pool recreates": {newPool(recreate), other(func(sb *agents.Sandbox) { sb.Labels[proto.LabelTemplateHash] = "old" }), "first", false},
	} {
		t.Run(name, func(t *testing.T) {
			second := newPoolMember("second", readyAt("10.128.0.10"))
			f := newClaimFixture(t, newTemplate(), c.pool, c.first, podOf(c.first), second, podOf(second), newClaim("c"))
			f.r.candidates.dropPool(poolKey)
			f.r.candidates.add(poolKey, "first", "")
			f.r.candidates.add(poolKey, "second", "")
			f.must("c")
			assert.Equal(t, c.want, f.claim("c").Status.Sandbox.Name)
			assert.Equal(t, c.queued, contains(f.r.candidates, "first"))
		})
	}

	t.Run("one that is not ready rather than none", func(t *testing.T) {
		member := newPoolMember("m", starting("10.128.0.9"))
		f := newClaimFixture(t, newTemplate(), newPool(), member, podOf(member), newClaim("c"))
		f.must("c")
		assert.Equal(t, "m", f.claim("c").Status.Sandbox.Name)
		assert.Equal(t, "False DependenciesNotReady Pod is Running but not Ready", f.ready("c"))
	})
	t.Run("a member of an earlier template of the pool stays one", func(t *testing.T) {
		member := newPoolMember("m", readyAt("10.128.0.9"))
		pool := newPool(func(p *ext.SandboxWarmPool) { p.Spec.TemplateRef.Name = "next" })
		next := newTemplate(func(x *ext.SandboxTemplate) {
			x.Name, x.UID = "next", "uid-of-next"
			x.Spec.PodTemplate.Metadata.Labels = map[string]string{"of": "next"}
		})
		f := newClaimFixture(t, newTemplate(), next, pool, member, podOf(member), newClaim("c"))
		f.must("c")
		sb := f.sandbox("m")
		assert.True(t, controlledBy(sb, "uid-of-c"))
		assert.Equal(t, proto.NameHash("tmpl"), sb.Labels[proto.LabelTemplateRefHash], "the NetworkPolicy that its pod was started under")
		assert.NotContains(t, sb.Spec.PodTemplate.Metadata.Labels, "of")
		f.wrote()
		f.must("c")
		assert.Empty(t, f.wrote())
	})
	t.Run("template unreadable, pool recreates: nothing is adopted", func(t *testing.T) {
		member := newPoolMember("m", readyAt("10.128.0.9"))
		f := newClaimFixture(t, newPool(recreate), member, podOf(member), newClaim("c"))
		f.must("c")
		assert.Equal(t, `False TemplateNotFound SandboxTemplate "tmpl" not found`, f.ready("c"))
		assert.True(t, contains(f.r.candidates, "m"))
	})
	t.Run("template unreadable, pool replenishes: adopted and edited in place", func(t *testing.T) {
		member := newPoolMember("m", readyAt("10.128.0.9"))
		f := newClaimFixture(t, newPool(), member, podOf(member), newClaim("c"))
		f.must("c")
		assert.Equal(t, "m", f.claim("c").Status.Sandbox.Name)
		pod := f.sandbox("m").Spec.PodTemplate.Metadata
		assert.Empty(t, pod.Annotations, "no mark for the autoscaler")
		assert.Equal(t, "uid-of-c", pod.Labels[proto.LabelClaimUID])
	})
}

func contains(c *candidates, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(poolKey, name) >= 0
}

func TestClaimWaitsForAddresses(t *testing.T) {
	member := newPoolMember("m", func(sb *agents.Sandbox) { sb.Status.NodeName = "node-1" })
	f := newClaimFixture(t, newTemplate(), newPool(), member, newClaim("c"))
	assert.Equal(t, addressRecheck, f.must("c"))
	assert.Equal(t, []string{"update SandboxClaim"}, f.wrote(), "the stamp, and no status")
	f.now = f.now.Add(addressGrace - 100*time.Millisecond)
	assert.Equal(t, 100*time.Millisecond, f.must("c"))
	assert.Empty(t, f.wrote())
	f.now = f.now.Add(100 * time.Millisecond)
	f.must("c")
	assert.Equal(t, "c", f.claim("c").Status.Sandbox.Name, "a cold start")
}

func TestPreferredZone(t *testing.T) {
	node := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	}
	on := func(node string) func(*agents.Sandbox) { return func(sb *agents.Sandbox) { sb.Status.NodeName = node } }
	near := newPoolMember("near", readyAt("10.128.0.9"), on("node-b"))
	far1, far2 := newPoolMember("far1", readyAt("10.128.0.10"), on("node-a")), newPoolMember("far2", readyAt("10.128.0.11"), on("node-a"))
	for zone, want := range map[string]string{"": "far1", "zone-b": "near", "zone-a": "far1", "zone-of-nowhere": "far1"} {
		t.Run(zone, func(t *testing.T) {
			claim := newClaim("c", func(c *ext.SandboxClaim) {
				c.Annotations = map[string]string{proto.AnnotationPreferredZone: zone}
			})
			f := newClaimFixture(t, newTemplate(), newPool(), node("node-a", "zone-a"), node("node-b", "zone-b"),
				far1.DeepCopy(), far2.DeepCopy(), near.DeepCopy(), podOf(far1), podOf(far2), podOf(near), claim)
			f.must("c")
			assert.Equal(t, want, f.claim("c").Status.Sandbox.Name)
		})
	}
}

func TestClaimProblems(t *testing.T) {
	badMetadata := func(c *ext.SandboxClaim) {
		c.Spec.AdditionalPodMetadata.Labels = map[string]string{"team": "a"}
	}
	clash := func(c *ext.SandboxClaim) {
		c.Spec.AdditionalPodMetadata.Annotations = map[string]string{"note": "claim"}
	}
	withEnv := func(c *ext.SandboxClaim) { c.Spec.Env = []ext.EnvVar{{Name: "A", Value: "1"}} }
	withVolume := func(c *ext.SandboxClaim) {
		c.Spec.VolumeClaimTemplates = volumeTemplates{{Metadata: agents.PersistentVolumeClaimMetadata{Name: "v"}}}
	}
	noted := newTemplate(func(x *ext.SandboxTemplate) {
		x.Spec.PodTemplate.Metadata.Annotations = map[string]string{"note": "template"}
	})
	inAMinute := func(c *ext.SandboxClaim) {
		c.Spec.Lifecycle = &ext.ClaimLifecycle{ShutdownTime: new(metav1.NewTime(time.Date(2026, 8, 22, 10, 0, 20, 0, time.UTC)))}
	}

	for name, c := range map[string]struct {
		objects []client.Object
		claim   *ext.SandboxClaim
		reason  string
		after   time.Duration
		backOff bool
	}{
		"no pool":             {[]client.Object{newTemplate()}, newClaim("c"), "WarmPoolNotFound", time.Minute, false},
		"no pool, expires":    {[]client.Object{newTemplate()}, newClaim("c", inAMinute), "WarmPoolNotFound", 20 * time.Second, false},
		"no template":         {[]client.Object{newPool()}, newClaim("c"), "TemplateNotFound", time.Minute, false},
		"metadata":            {[]client.Object{newPool(), newTemplate()}, newClaim("c", badMetadata), "InvalidMetadata", 0, false},
		"metadata, expires":   {[]client.Object{newPool(), newTemplate()}, newClaim("c", badMetadata, inAMinute), "InvalidMetadata", 20 * time.Second, false},
		"variables":           {[]client.Object{newPool(), newTemplate()}, newClaim("c", withEnv), "EnvVarsInjectionRejected", 0, false},
		"volumes":             {[]client.Object{newPool(), newTemplate()}, newClaim("c", withVolume), "VolumeClaimTemplatesError", 0, false},
		"metadata override":   {[]client.Object{newPool(), noted}, newClaim("c", clash), "ReconcilerError", 0, true},
		"override, candidate": {[]client.Object{newPool(), noted, newPoolMember("m", readyAt("10.128.0.9"))}, newClaim("c", clash), "ReconcilerError", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newClaimFixture(t, append(c.objects, c.claim)...)
			result, err := f.reconcile("c")
			assert.Equal(t, c.backOff, err != nil, "%v", err)
			assert.Equal(t, c.after, result.RequeueAfter)
			assert.Contains(t, f.ready("c"), "False "+c.reason+" ")
			assert.Equal(t, []string{"update SandboxClaim", "status SandboxClaim"}, f.wrote())
			for _, sb := range f.sandboxes() {
				assert.False(t, controlledBy(&sb, "uid-of-c"))
				assert.True(t, contains(f.r.candidates, sb.Name), "the candidate keeps its place")
			}
			_, _ = f.reconcile("c")
			assert.Empty(t, f.wrote())
		})
	}
}

// notCached hides objects from the cache and leaves them to live reads.
func (f *claimFixture) notCached(hidden ...client.Object) {
	f.shared.client.Client = interceptor.NewClient(f.fixture.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			for _, h := range hidden {
				if kindOf(h) == kindOf(obj) && h.GetName() == key.Name {
					return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
				}
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
}

func TestClaimReadsThroughAColdCache(t *testing.T) {
	t.Run("pool and template", func(t *testing.T) {
		f := newClaimFixture(t, newTemplate(), newPool(), newClaim("c"))
		f.notCached(newTemplate(), newPool())
		f.must("c")
		assert.Equal(t, "c", f.claim("c").Status.Sandbox.Name)
	})
	t.Run("a sandbox of its own that the cache does not show", func(t *testing.T) {
		own := newPoolMember("c", controlledByClaim(newClaim("c")))
		free := newPoolMember("m", readyAt("10.128.0.9"))
		claim := newClaim("c", func(c *ext.SandboxClaim) {
			c.Annotations = map[string]string{proto.AnnotationControllerFirstObserved: "2026-08-22T09:59:59.5Z"}
		})
		f := newClaimFixture(t, newTemplate(), newPool(), own, free, podOf(free), claim)
		f.notCached(own)
		f.must("c")
		assert.Equal(t, "c", f.claim("c").Status.Sandbox.Name)
		assert.True(t, contains(f.r.candidates, "m"))
	})
	t.Run("a commitment that the cache does not show", func(t *testing.T) {
		stale := newClaim("c", func(c *ext.SandboxClaim) {
			c.Annotations = map[string]string{proto.AnnotationControllerFirstObserved: "2026-08-22T09:59:59.5Z"}
		})
		claim := stale.DeepCopy()
		claim.Annotations[proto.AnnotationAssignedSandboxName] = "a"
		f := newClaimFixture(t, newTemplate(), newPool(), newPoolMember("a", controlledByClaim(claim)), claim)
		stale.ResourceVersion = "1"
		f.shared.client.Client = interceptor.NewClient(f.fixture.client, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if out, ok := obj.(*ext.SandboxClaim); ok {
					*out = *stale
					return nil
				}
				return c.Get(ctx, key, obj, opts...)
			},
		})
		assert.Zero(t, f.must("c"), "the event of the newer claim brings the next pass")
		assert.Empty(t, f.wrote())
	})
	t.Run("a creation that finds its own sandbox", func(t *testing.T) {
		own := newPoolMember("c", controlledByClaim(newClaim("c")))
		f := newClaimFixture(t, newTemplate(), newPool(), own, newClaim("c"))
		f.notCached(own)
		f.must("c")
		assert.Equal(t, "c", f.claim("c").Status.Sandbox.Name)
		assert.Len(t, f.sandboxes(), 1)
	})
	t.Run("a creation that finds somebody else's", func(t *testing.T) {
		other := newPoolMember("c", controlledByClaim(newClaim("x")))
		f := newClaimFixture(t, newTemplate(), newPool(), other, newClaim("c"))
		f.notCached(other)
		_, err := f.reconcile("c")
		require.Error(t, err)
		assert.Contains(t, f.ready("c"), `sandbox "c" is not controlled by claim "c"`)
	})
	t.Run("a creation that finds what is gone again", func(t *testing.T) {
		f := newClaimFixture(t, newTemplate(), newPool(), newClaim("c"))
		f.fail = func(verb string, obj client.Object) error {
			if verb == "create" {
				return apierrors.NewAlreadyExists(schema.GroupResource{}, "c")
			}
			return nil
		}
		assert.Equal(t, createRecheck, f.must("c"))
		assert.Equal(t, "False SandboxCreatePending Sandbox already created; waiting for cache to converge", f.ready("c"))
	})
}

// What becomes of a commitment when the adoption meets somebody else's write.
func TestAdoptionConflicts(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "m", errors.New("changed"))
	for name, c := range map[string]struct {
		change   func(f *claimFixture) // what the other one did, just before the adoption
		err      error
		times    int
		want     string // the claim's sandbox
		reason   string
		assigned string
	}{
		"changed, still free":  {func(*claimFixture) {}, conflict, 1, "m", "True DependenciesReady Pod is Ready", "m"},
		"already ours":         {func(f *claimFixture) { giveTo(f, "m", newClaim("c")) }, conflict, 1, "m", "True DependenciesReady Pod is Ready", "m"},
		"went to another":      {func(f *claimFixture) { giveTo(f, "m", newClaim("x")) }, conflict, 1, "", `False AdoptionConflict sandbox "m" is no longer pool-owned; the next pass retries from a converged view`, ""},
		"deleted":              {func(f *claimFixture) { require.NoError(f, f.fixture.client.Delete(f.Context(), f.sandbox("m"))) }, apierrors.NewNotFound(schema.GroupResource{}, "m"), 1, "", `False AdoptionConflict sandbox "m" was deleted before adoption completed; the next pass retries from a converged view`, ""},
		"keeps changing":       {func(*claimFixture) {}, conflict, 100, "", `False AdoptionConflict sandbox "m" kept changing during adoption; the next pass retries from a converged view`, "m"},
		"refused":              {func(*claimFixture) {}, errors.New("boom"), 100, "", "False ReconcilerError Error seen: boom", "m"},
		"the controller stops": {func(*claimFixture) {}, context.Canceled, 100, "", "False ReconcilerError Error seen: context canceled", "m"},
	} {
		t.Run(name, func(t *testing.T) {
			member := newPoolMember("m", readyAt("10.128.0.9"))
			f := newClaimFixture(t, newTemplate(), newPool(), member, podOf(member), newClaim("c"))
			left := c.times
			f.fail = func(verb string, obj client.Object) error {
				if _, ok := obj.(*agents.Sandbox); !ok || verb != "patch" || left == 0 {
					return nil
				}
				if left == c.times {
					left--
					c.change(f)
				} else {
					left--
				}
				return c.err
			}
			_, err := f.reconcile("c")
			assert.Equal(t, c.want == "", err != nil, "%v", err)
			claim := f.claim("c")
			assert.Equal(t, c.want, claim.Status.Sandbox.Name)
			assert.Equal(t, c.reason, f.ready("c"))
			assert.Equal(t, c.assigned, claim.Annotations[proto.AnnotationAssignedSandboxName])
			for _, sb := range f.sandboxes() {
				assert.Equal(t, "m", sb.Name, "no second sandbox in the same pass")
			}
		})
	}

	t.Run("the claim was changed by somebody else", func(t *testing.T) {
		member := newPoolMember("m", readyAt("10.128.0.9"))
		f := newClaimFixture(t, newTemplate(), newPool(), member, podOf(member), newClaim("c"))
		f.fail = func(verb string, obj client.Object) error {
			if _, ok := obj.(*ext.SandboxClaim); ok && verb == "update" {
				return conflict
			}
			return nil
		}
		assert.Zero(t, f.must("c"), "that change brings the next pass")
		assert.Empty(t, f.wrote())
		assert.True(t, contains(f.r.candidates, "m"), "the candidate is free again")
	})
}

// own gives a sandbox to a claim, as another controller would.
func giveTo(f *claimFixture, name string, claim *ext.SandboxClaim) {
	sb := f.sandbox(name)
	controlledByClaim(claim)(sb)
	require.NoError(f, f.fixture.client.Update(f.Context(), sb))
}

func TestClaimIsNotReadyWithoutARoute(t *testing.T) {
	member := newPoolMember("m", readyAt("10.128.0.9"))
	f := newClaimFixture(t, newTemplate(), newPool(), member, podOf(member), newClaim("c"))
	f.fail = func(verb string, obj client.Object) error {
		if kindOf(obj) == "EndpointSlice" {
			return errors.New("boom")
		}
		return nil
	}
	_, err := f.reconcile("c")
	require.Error(t, err)
	assert.Equal(t, "False ReconcilerError Error seen: publish route: boom", f.ready("c"))
	assert.Equal(t, "m", f.claim("c").Status.Sandbox.Name)
	f.fail = nil
	f.must("c")
	assert.Equal(t, "True DependenciesReady Pod is Ready", f.ready("c"))
}

func TestFirstReady(t *testing.T) {
	sandbox := newPoolMember("m", controlledByClaim(newClaim("c")), readyAt("10.128.0.9"))
	bound := func(ready metav1.ConditionStatus, firstReady string) *ext.SandboxClaim {
		return newClaim("c", func(c *ext.SandboxClaim) {
			c.Annotations = map[string]string{
				proto.AnnotationAssignedSandboxName:     "m",
				proto.AnnotationControllerFirstObserved: "2026-08-22T09:59:59.5Z",
			}
			if firstReady != "" {
				c.Annotations[proto.AnnotationClaimFirstReady] = firstReady
			}
			c.Status.Sandbox.Name = "m"
			c.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: ready, Reason: "X", LastTransitionTime: earlier}}
		})
	}
	for name, c := range map[string]struct {
		claim *ext.SandboxClaim
		want  string
	}{
		"turns ready":            {bound("False", ""), "2026-08-22T10:00:00Z"},
		"was ready before":       {bound("True", ""), "unknown"},
		"was noted, flaps":       {bound("False", "2026-08-21T00:00:00Z"), "2026-08-21T00:00:00Z"},
		"was noted, stays ready": {bound("True", "2026-08-21T00:00:00Z"), "2026-08-21T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newClaimFixture(t, newTemplate(), newPool(), sandbox.DeepCopy(), podOf(sandbox), c.claim)
			f.must("c")
			assert.Equal(t, c.want, f.claim("c").Annotations[proto.AnnotationClaimFirstReady])
			f.wrote()
			f.must("c")
			assert.Empty(t, f.wrote())
		})
	}

	t.Run("somebody changes the claim in between", func(t *testing.T) {
		f := newClaimFixture(t, newTemplate(), newPool(), sandbox.DeepCopy(), podOf(sandbox), bound("False", ""))
		failed := false
		f.fail = func(verb string, obj client.Object) error {
			if _, ok := obj.(*ext.SandboxClaim); ok && verb == "update" && !failed {
				failed = true
				return apierrors.NewConflict(schema.GroupResource{}, "c", errors.New("changed"))
			}
			return nil
		}
		f.must("c")
		assert.Empty(t, f.claim("c").Annotations[proto.AnnotationClaimFirstReady])
		f.now = f.now.Add(time.Minute)
		f.must("c") // for the event of that change
		assert.Equal(t, "2026-08-22T10:00:00Z", f.claim("c").Annotations[proto.AnnotationClaimFirstReady])
	})
}

func TestObservabilityAnnotationsOff(t *testing.T) {
	member := newPoolMember("m", readyAt("10.128.0.9"))
	f := newClaimFixture(t, newTemplate(), newPool(), member, podOf(member), newClaim("c"))
	f.r.options.ClaimObservabilityAnnotations = false
	f.r.options.ClaimEvents = false
	f.must("c")
	assert.Equal(t, warmWrites, f.wrote())
	assert.NotContains(t, f.claim("c").Annotations, proto.AnnotationControllerFirstObserved)
	assert.Empty(t, f.nextEvent())
}

func TestStatusConflictIsDropped(t *testing.T) {
	member := newPoolMember("m", readyAt("10.128.0.9"))
	f := newClaimFixture(t, newTemplate(), newPool(), member, podOf(member), newClaim("c"))
	f.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*ext.SandboxClaim); ok && verb == "status" {
			return apierrors.NewConflict(schema.GroupResource{}, "c", errors.New("changed"))
		}
		return nil
	}
	assert.Zero(t, f.must("c"))
	assert.NotContains(t, f.claim("c").Annotations, proto.AnnotationClaimFirstReady, "nothing is recorded")
}

func TestClaimUpkeep(t *testing.T) {
	claim := func(change ...func(*ext.SandboxClaim)) *ext.SandboxClaim {
		return newClaim("c", append(change, func(c *ext.SandboxClaim) { c.Status.Sandbox.Name = "m" })...)
	}
	// made is the claim's sandbox as an adoption leaves it.
	made := func(change ...func(*agents.Sandbox)) *agents.Sandbox {
		sb := newPoolMember("m", controlledByClaim(newClaim("c")))
		delete(sb.Labels, proto.LabelCreatedBy)
		sb.Spec.PodTemplate.Metadata, _ = claimedPodMetadata(newClaim("c"), newTemplate())
		for _, c := range change {
			c(sb)
		}
		return sb
	}
	labelled := newTemplate(func(x *ext.SandboxTemplate) {
		x.Spec.PodTemplate.Metadata.Labels = map[string]string{"team": "b"}
		x.Spec.PodTemplate.Spec.Containers[0].Image = "runtime:2"
	})
	adding := func(c *ext.SandboxClaim) { c.Spec.AdditionalPodMetadata.Annotations = map[string]string{"note": "x"} }

	for name, c := range map[string]struct {
		objects []client.Object
		sandbox *agents.Sandbox
		writes  int
		check   func(*testing.T, *agents.Sandbox)
		fault   string
	}{
		"nothing to do": {[]client.Object{newTemplate(), newPool(), claim()}, made(), 0, func(*testing.T, *agents.Sandbox) {}, ""},
		"template metadata flows, its spec does not": {[]client.Object{labelled, newPool(), claim()}, made(), 1, func(t *testing.T, sb *agents.Sandbox) {
			assert.Equal(t, "b", sb.Spec.PodTemplate.Metadata.Labels["team"])
			assert.Equal(t, "runtime", sb.Spec.PodTemplate.Spec.Containers[0].Image)
		}, ""},
		"removed metadata goes": {[]client.Object{newTemplate(), newPool(), claim()}, made(func(sb *agents.Sandbox) { sb.Spec.PodTemplate.Metadata.Labels["old"] = "x" }), 1, func(t *testing.T, sb *agents.Sandbox) {
			assert.NotContains(t, sb.Spec.PodTemplate.Metadata.Labels, "old")
		}, ""},
		"additions flow": {[]client.Object{newTemplate(), newPool(), claim(adding)}, made(), 1, func(t *testing.T, sb *agents.Sandbox) {
			assert.Equal(t, "x", sb.Spec.PodTemplate.Metadata.Annotations["note"])
		}, ""},
		"created-by flows": {[]client.Object{newTemplate(), newPool(), claim(func(c *ext.SandboxClaim) { c.Labels = map[string]string{proto.LabelCreatedBy: "me"} })}, made(), 1, func(t *testing.T, sb *agents.Sandbox) {
			assert.Equal(t, "me", sb.Labels[proto.LabelCreatedBy])
			assert.Equal(t, "me", sb.Spec.PodTemplate.Metadata.Labels[proto.LabelCreatedBy])
		}, ""},
		"template hash is repaired": {[]client.Object{newTemplate(), newPool(), claim()}, made(func(sb *agents.Sandbox) { delete(sb.Labels, proto.LabelTemplateRefHash) }), 1, func(t *testing.T, sb *agents.Sandbox) {
			assert.Equal(t, proto.NameHash("tmpl"), sb.Labels[proto.LabelTemplateRefHash])
		}, ""},
		"launch type is added": {[]client.Object{newTemplate(), newPool(), claim()}, made(func(sb *agents.Sandbox) { delete(sb.Labels, proto.LabelLaunchType) }), 1, func(t *testing.T, sb *agents.Sandbox) {
			assert.Equal(t, "warm", sb.Labels[proto.LabelLaunchType])
		}, ""},
		"pool points elsewhere now": {[]client.Object{newTemplate(), newPool(func(p *ext.SandboxWarmPool) { p.Spec.TemplateRef.Name = "another" }), claim()}, made(), 0, func(*testing.T, *agents.Sandbox) {}, ""},
		"template is gone":          {[]client.Object{newPool(), claim()}, made(), 0, func(*testing.T, *agents.Sandbox) {}, ""},
		"template is gone, additions": {[]client.Object{newPool(), claim(adding)}, made(), 0, func(*testing.T, *agents.Sandbox) {},
			`False TemplateNotFound SandboxTemplate "tmpl" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newClaimFixture(t, append(c.objects, c.sandbox)...)
			f.must("c")
			writes := 0
			for _, w := range f.wrote() {
				if w == "patch Sandbox" {
					writes++
				}
			}
			assert.Equal(t, c.writes, writes)
			c.check(t, f.sandbox("m"))
			if c.fault != "" {
				assert.Equal(t, c.fault, f.ready("c"))
			}
			assert.Equal(t, "m", f.claim("c").Status.Sandbox.Name)
			f.must("c")
			assert.Empty(t, f.wrote())
		})
	}
}

func TestLegacyNetworkPolicy(t *testing.T) {
	claim := newClaim("c")
	policy := func(owners ...metav1.OwnerReference) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c-network-policy", OwnerReferences: owners}}
	}
	for name, c := range map[string]struct {
		policy *networkingv1.NetworkPolicy
		gone   bool
	}{
		"ours":       {policy(newControllerRef(claim, claimGVK)), true},
		"another's":  {policy(foreignRef), false},
		"a user's":   {policy(), false},
		"a namesake": {policy(newControllerRef(newClaim("x"), claimGVK)), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newClaimFixture(t, newTemplate(), newPool(), claim.DeepCopy(), c.policy)
			f.must("c")
			assert.Equal(t, c.gone, !f.get(&networkingv1.NetworkPolicy{}, "c-network-policy"))
		})
	}
}
