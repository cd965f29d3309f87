package reconcile

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

func TestReconcileService(t *testing.T) {
	sb := newSandbox("s")
	hash := proto.NameHash("s")
	service := func(change func(*corev1.Service)) *corev1.Service {
		svc := buildService(sb)
		svc.UID = "uid-of-service"
		change(svc)
		return svc
	}
	unchanged := func(*corev1.Service) {}
	drifted := func(svc *corev1.Service) {
		svc.Labels = map[string]string{"theirs": "x"}
		svc.Spec.Selector = map[string]string{"app": "x"}
		svc.Spec.Ports = []corev1.ServicePort{{Name: "old", Port: 1, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(1)}}
	}
	unowned := func(label map[string]string, clusterIP string) func(*corev1.Service) {
		return func(svc *corev1.Service) {
			svc.OwnerReferences, svc.Labels, svc.Spec.ClusterIP = nil, label, clusterIP
			svc.Spec.Ports = nil
		}
	}
	foreign := func(svc *corev1.Service) { svc.OwnerReferences = []metav1.OwnerReference{foreignRef} }
	adopt := map[string]string{proto.LabelAdoptable: "true"}

	const ours, old, none = "ours", "old ports", ""
	for name, c := range map[string]struct {
		wanted   *bool
		existing func(*corev1.Service) // nil for no Service
		writes   []string
		usable   string // which Service counts afterwards
		err      string
	}{
		"wanted, missing":           {new(true), nil, []string{"create Service"}, ours, ""},
		"wanted, owned":             {new(true), unchanged, nil, ours, ""},
		"wanted, owned, drifted":    {new(true), drifted, []string{"patch Service"}, ours, ""},
		"wanted, adoptable":         {new(true), unowned(adopt, "None"), []string{"patch Service"}, ours, ""},
		"wanted, own hash, no IP":   {new(true), unowned(map[string]string{proto.LabelSandboxNameHash: hash}, ""), []string{"patch Service"}, ours, ""},
		"wanted, with a cluster IP": {new(true), unowned(adopt, "10.0.0.1"), nil, none, `cannot adopt service "s": it has the cluster IP 10.0.0.1, a sandbox needs a headless one`},
		"wanted, not adoptable":     {new(true), unowned(nil, "None"), nil, none, `cannot adopt unowned service "s": missing required pool authorization label ("agents.x-k8s.io/adoptable") or sandbox tracking label ("agents.x-k8s.io/sandbox-name-hash")`},
		"wanted, somebody else's":   {new(true), foreign, nil, none, `service "s" is owned by ReplicaSet/other (UID: uid-of-other), not by sandbox "s"`},
		"unset, missing":            {nil, nil, nil, none, ""},
		"unset, owned":              {nil, unchanged, nil, ours, ""},
		"unset, owned, drifted":     {nil, drifted, []string{"patch Service"}, old, ""},
		"unset, unowned":            {nil, unowned(adopt, "None"), nil, none, ""},
		"unset, somebody else's":    {nil, foreign, nil, none, `service "s" is owned by ReplicaSet/other (UID: uid-of-other), not by sandbox "s"`},
		"unwanted, missing":         {new(false), nil, nil, none, ""},
		"unwanted, owned":           {new(false), unchanged, []string{"delete Service"}, none, ""},
		"unwanted, unowned":         {new(false), unowned(adopt, "None"), nil, none, ""},
		"unwanted, somebody else's": {new(false), foreign, nil, none, ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{newSandbox("s", withService(c.wanted))}
			if c.existing != nil {
				objects = append(objects, service(c.existing))
			}
			f := newFixture(t, objects...)
			got, err := f.r.reconcileService(t.Context(), f.sandbox("s"))
			if c.err == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.err)
			}
			assert.Equal(t, c.writes, f.wrote())
			if c.usable == none {
				assert.Nil(t, got)
				return
			}
			stored := &corev1.Service{}
			require.True(t, f.get(stored, "s"))
			assert.Equal(t, hash, stored.Labels[proto.LabelSandboxNameHash])
			assert.Equal(t, map[string]string{proto.LabelSandboxNameHash: hash}, stored.Spec.Selector)
			assert.True(t, controlledBy(stored, sb.UID))
			want := buildService(sb).Spec.Ports
			if c.usable == old {
				want = []corev1.ServicePort{{Name: "old", Port: 1, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(1)}}
			}
			assert.Equal(t, want, stored.Spec.Ports)
			if c.existing == nil {
				assert.Equal(t, corev1.ClusterIPNone, stored.Spec.ClusterIP)
			}
		})
	}
}

func TestServiceWithoutPorts(t *testing.T) {
	sb := newSandbox("s", withService(new(true)), func(sb *agents.Sandbox) { sb.Spec.PodTemplate.Spec.Containers[0].Ports = nil })
	f := newFixture(t, sb)
	svc, err := f.r.reconcileService(t.Context(), sb)
	require.NoError(t, err)
	assert.Nil(t, svc.Spec.Ports)
}

func TestReconcilePVCs(t *testing.T) {
	sb := newSandbox("s", withVolume("data"), withVolume("more"))
	hash := map[string]string{proto.LabelSandboxNameHash: proto.NameHash("s")}
	pvc := func(labels map[string]string, refs ...metav1.OwnerReference) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-s", Labels: labels, OwnerReferences: refs}}
	}
	const createMore = "create PersistentVolumeClaim"
	for name, c := range map[string]struct {
		existing *corev1.PersistentVolumeClaim
		writes   []string
		err      string
	}{
		"missing":              {nil, []string{createMore, createMore}, ""},
		"owned, never touched": {pvc(nil, newControllerRef(sb, sandboxGVK)), []string{createMore}, ""},
		"adoptable":            {pvc(map[string]string{proto.LabelAdoptable: "true"}), []string{"patch PersistentVolumeClaim", createMore}, ""},
		"own hash":             {pvc(hash), []string{"patch PersistentVolumeClaim", createMore}, ""},
		"not adoptable": {pvc(nil), nil,
			`cannot adopt unowned PVC "data-s": missing required pool authorization label ("agents.x-k8s.io/adoptable") or sandbox tracking label ("agents.x-k8s.io/sandbox-name-hash")`},
		"somebody else's": {pvc(hash, foreignRef), nil, `PVC "data-s" is owned by ReplicaSet/other (UID: uid-of-other), not by sandbox "s"`},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{sb.DeepCopy()}
			if c.existing != nil {
				objects = append(objects, c.existing)
			}
			f := newFixture(t, objects...)
			err := f.r.reconcilePVCs(t.Context(), sb)
			assert.Equal(t, c.writes, f.wrote(), "the first error ends the loop")
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			stored := &corev1.PersistentVolumeClaim{}
			require.True(t, f.get(stored, "data-s"))
			assert.True(t, controlledBy(stored, sb.UID))
			if c.existing != nil {
				assert.Equal(t, c.existing.Labels, stored.Labels, "adoption adds nothing but the reference")
			}
			require.NoError(t, f.r.reconcilePVCs(t.Context(), sb))
			assert.Empty(t, f.wrote())
		})
	}
}

func TestCreatedPVCThatCacheDoesNotShow(t *testing.T) {
	sb := newSandbox("s", withVolume("data"))
	f := newFixture(t, sb)
	f.shared.client.Client = &hidden{Client: f.client, hide: func(o client.Object) bool { _, ok := o.(*corev1.PersistentVolumeClaim); return ok }}
	require.NoError(t, f.r.reconcilePVCs(t.Context(), sb))
	require.NoError(t, f.r.reconcilePVCs(t.Context(), sb))
	assert.Equal(t, []string{"create PersistentVolumeClaim"}, f.wrote())
	f.now = f.now.Add(ownWriteTTL)
	require.NoError(t, f.r.reconcilePVCs(t.Context(), sb), "AlreadyExists is answered by a live read")
}
