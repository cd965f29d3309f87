package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovakiin0/agent-sandbox/controller/priority"
	"github.com/dovakiin0/agent-sandbox/proto"
	agents "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
	ext "github.com/dovakiin0/agent-sandbox/proto/extensions/v1beta1"
)

// fixture is a Sandbox reconciler on an API server in memory, with a clock that the test moves.
type fixture struct {
	*testing.T
	client   client.WithWatch
	now      time.Time
	recorder *events.FakeRecorder
	shared   *shared
	r        *sandboxReconciler

	mu     sync.Mutex                                 // pools write in parallel
	writes []string                                   // "verb Kind[/sub]" in order
	fail   func(verb string, obj client.Object) error // makes a write fail before it happens
	serial int

	background []string // those of writes that give way to others
}

func newScheme(t testing.TB) *runtime.Scheme {
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, agents.AddToScheme(scheme))
	require.NoError(t, ext.AddToScheme(scheme))
	return scheme
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	f := &fixture{T: t, now: time.Date(2026, 8, 22, 10, 0, 0, 0, time.UTC), recorder: events.NewFakeRecorder(100)}
	for _, o := range objects {
		f.stamp(o)
	}
	b := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(objects...).
		WithStatusSubresource(&agents.Sandbox{}, &ext.SandboxWarmPool{}, &ext.SandboxClaim{}, &corev1.Pod{}).
		WithInterceptorFuncs(f.interceptor())
	for _, index := range indexes {
		b = b.WithIndex(index.object, index.field, index.values)
	}
	f.client = b.Build()
	f.shared = newShared(f.client, f.client, f.recorder, func() time.Time { return f.now })
	f.r = newSandboxReconciler(f.shared, DefaultOptions())
	return f
}

// stamp gives an object what the API server would.
func (f *fixture) stamp(o client.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.serial++
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", f.serial)))
	}
	if o.GetCreationTimestamp().Time.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(f.now))
	}
	if o.GetGeneration() == 0 {
		o.SetGeneration(1)
	}
}

// blank returns an empty object of the kind of o, which may be nothing but metadata.
func blank(t testing.TB, c client.Client, o client.Object) client.Object {
	gvk, err := c.GroupVersionKindFor(o)
	require.NoError(t, err)
	empty, err := c.Scheme().New(gvk)
	require.NoError(t, err)
	return empty.(client.Object)
}

func (f *fixture) write(ctx context.Context, verb string, o client.Object) error {
	if p, ok := o.(*metav1.PartialObjectMetadata); ok { // no more is to be answered: for a test it is the object itself
		o = blank(f, f.client, p)
		o.SetNamespace(p.Namespace)
		o.SetName(p.Name)
	}
	if f.fail != nil {
		if err := f.fail(verb, o); err != nil {
			return err
		}
	}
	kind := fmt.Sprintf("%T", o)
	f.mu.Lock()
	defer f.mu.Unlock()
	write := verb + " " + kind[strings.LastIndex(kind, ".")+1:]
	f.writes = append(f.writes, write)
	if priority.IsBackground(ctx) {
		f.background = append(f.background, write)
	}
	return nil
}

func (f *fixture) interceptor() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := f.write(ctx, "create", o); err != nil {
				return err
			}
			f.stamp(o)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := f.write(ctx, "update", o); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := f.write(ctx, "patch", o); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := f.write(ctx, "delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := f.write(ctx, "status", o); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if err := f.write(ctx, "status", o); err != nil {
				return err
			}
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}
}

// wrote returns the writes since the last call.
func (f *fixture) wrote() []string {
	w := f.writes
	f.writes, f.background = nil, nil
	return w
}

func (f *fixture) reconcile(name string) (ctrl.Result, error) {
	return f.r.Reconcile(f.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}})
}

// settle reconciles, without error, past all deferrals.
func (f *fixture) settle(name string) {
	f.Helper()
	for range 3 {
		_, err := f.reconcile(name)
		require.NoError(f, err)
		f.now = f.now.Add(statusDelay)
	}
}

// get reads an object into o, and reports whether it exists.
func (f *fixture) get(o client.Object, name string) bool {
	f.Helper()
	err := f.client.Get(f.Context(), types.NamespacedName{Namespace: "ns", Name: name}, o)
	require.NoError(f, client.IgnoreNotFound(err))
	return err == nil
}

func (f *fixture) sandbox(name string) *agents.Sandbox {
	f.Helper()
	sb := &agents.Sandbox{}
	require.True(f, f.get(sb, name), "Sandbox %s", name)
	return sb
}

func (f *fixture) pod(name string) *corev1.Pod {
	f.Helper()
	pod := &corev1.Pod{}
	require.True(f, f.get(pod, name), "Pod %s", name)
	return pod
}

func (f *fixture) slice(sandbox string) *discoveryv1.EndpointSlice {
	f.Helper()
	slice := &discoveryv1.EndpointSlice{}
	require.True(f, f.get(slice, routeName(sandbox)), "EndpointSlice of %s", sandbox)
	return slice
}

// edit changes an object the way somebody else would.
func edit[T client.Object](f *fixture, o T, change func(T)) {
	f.Helper()
	change(o)
	require.NoError(f, f.client.Update(f.Context(), o))
	f.writes, f.background = nil, nil
}

// run makes the Pod look as a kubelet would show it.
func (f *fixture) run(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	f.Helper()
	pod := f.pod(name)
	pod.Status = runningPod().Status
	for _, c := range change {
		c(pod)
	}
	status := pod.Status
	pod.Spec.NodeName = "node-1"
	require.NoError(f, f.client.Update(f.Context(), pod))
	pod.Status = status
	require.NoError(f, f.client.Status().Update(f.Context(), pod))
	f.writes, f.background = nil, nil
	return pod
}

func (f *fixture) ready(name string) *metav1.Condition {
	f.Helper()
	return find(f.sandbox(name), agents.ConditionReady)
}

func find(sb *agents.Sandbox, kind agents.ConditionType) *metav1.Condition {
	if i := slices.IndexFunc(sb.Status.Conditions, func(c metav1.Condition) bool { return c.Type == string(kind) }); i >= 0 {
		return &sb.Status.Conditions[i]
	}
	return nil
}

// newSandbox returns a running Sandbox with one container.
func newSandbox(name string, change ...func(*agents.Sandbox)) *agents.Sandbox {
	sb := &agents.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), Generation: 1},
		Spec:       agents.SandboxSpec{OperatingMode: agents.OperatingModeRunning},
	}
	sb.Spec.PodTemplate.Spec.Containers = []corev1.Container{{
		Name: "main", Image: "runtime", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8888}},
	}}
	for _, c := range change {
		c(sb)
	}
	return sb
}

func suspended(sb *agents.Sandbox) { sb.Spec.OperatingMode = agents.OperatingModeSuspended }
func withService(on *bool) func(*agents.Sandbox) {
	return func(sb *agents.Sandbox) { sb.Spec.Service = on }
}

// runningPod returns a Pod that is Ready.
func runningPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: "uid-of-pod"},
		Spec:       corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			},
			PodIP: "10.128.0.7", PodIPs: []corev1.PodIP{{IP: "10.128.0.7"}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// ownedBy makes the Sandbox the controller of a Pod, Service or PersistentVolumeClaim, and gives it the tracking label.
func ownedBy[T client.Object](sb *agents.Sandbox, o T) T {
	o.SetNamespace(sb.Namespace)
	o.SetOwnerReferences([]metav1.OwnerReference{newControllerRef(sb, sandboxGVK)})
	o.SetLabels(map[string]string{proto.LabelSandboxNameHash: proto.NameHash(sb.Name)})
	return o
}

// foreignRef is the controller reference of somebody else.
var foreignRef = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "other", UID: "uid-of-other", Controller: new(true)}

// hidden is a client whose reads lag: it hides some objects and shows old versions of others.
type hidden struct {
	client.Client
	hide func(client.Object) bool
	show map[string]client.Object // by name
}

func (h *hidden) Get(ctx context.Context, key types.NamespacedName, o client.Object, opts ...client.GetOption) error {
	if h.hide != nil && h.hide(o) {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	if old, ok := h.show[key.Name].(*agents.Sandbox); ok {
		if sb, ok := o.(*agents.Sandbox); ok {
			old.DeepCopyInto(sb)
			return nil
		}
	}
	return h.Client.Get(ctx, key, o, opts...)
}

func (h *hidden) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*corev1.PodList); ok && h.hide != nil && h.hide(&corev1.Pod{}) {
		return nil
	}
	return h.Client.List(ctx, list, opts...)
}
