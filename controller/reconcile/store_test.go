package reconcile

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shows is a cache or an API server that has one Service.
type shows struct {
	client.WithWatch
	service *corev1.Service
	err     error
}

func (s shows) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if s.err != nil {
		return s.err
	}
	if s.service == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	s.service.DeepCopyInto(obj.(*corev1.Service))
	return nil
}

func serviceAt(version string, change ...func(*corev1.Service)) *corev1.Service {
	if version == "" {
		return nil
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", ResourceVersion: version, UID: "1"}}
	for _, c := range change {
		c(s)
	}
	return s
}

func TestStoreShowsItsOwnWrites(t *testing.T) {
	another := func(s *corev1.Service) { s.UID = "2" }
	for name, c := range map[string]struct {
		own    ownWrite
		age    time.Duration
		cached *corev1.Service
		live   shows
		want   string // "" for nothing
		err    bool
	}{
		"nothing written":             {cached: serviceAt("5"), want: "5"},
		"nothing anywhere":            {},
		"created, not shown":          {own: ownWrite{obj: serviceAt("7"), unseen: true}, want: "7"},
		"created, shown":              {own: ownWrite{obj: serviceAt("7"), unseen: true}, cached: serviceAt("7"), want: "7"},
		"changed, cache behind":       {own: ownWrite{obj: serviceAt("10")}, cached: serviceAt("9"), want: "10"},
		"changed, cache far behind":   {own: ownWrite{obj: serviceAt("10")}, age: time.Hour, cached: serviceAt("9"), want: "10"},
		"changed, cache there":        {own: ownWrite{obj: serviceAt("10")}, cached: serviceAt("10"), want: "10"},
		"changed, cache ahead":        {own: ownWrite{obj: serviceAt("9")}, cached: serviceAt("10"), want: "10"},
		"changed, deleted by others":  {own: ownWrite{obj: serviceAt("9")}},
		"no number is not newer":      {own: ownWrite{obj: serviceAt("x")}, cached: serviceAt("9"), want: "9"},
		"created long ago, there":     {own: ownWrite{obj: serviceAt("7"), unseen: true}, age: ownWriteTTL, live: shows{service: serviceAt("8")}, want: "8"},
		"created long ago, gone":      {own: ownWrite{obj: serviceAt("7"), unseen: true}, age: ownWriteTTL},
		"created long ago, who knows": {own: ownWrite{obj: serviceAt("7"), unseen: true}, age: ownWriteTTL, live: shows{err: errors.New("boom")}, err: true},
		"deleted, cache behind":       {own: ownWrite{obj: serviceAt("7"), gone: true}, age: time.Hour, cached: serviceAt("8"), want: "7"},
		"deleted, shown":              {own: ownWrite{obj: serviceAt("7"), gone: true}},
		"deleted, made again":         {own: ownWrite{obj: serviceAt("7"), gone: true}, cached: serviceAt("8", another), want: "8"},
	} {
		t.Run(name, func(t *testing.T) {
			clock := time.Now()
			s := newStore(shows{service: c.cached}, c.live, func() time.Time { return clock })
			if c.own.obj != nil {
				s.put(c.own)
			}
			clock = clock.Add(c.age)
			got, err := get[corev1.Service](t.Context(), s, client.ObjectKey{Namespace: "ns", Name: "x"})
			if c.err {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			if c.want == "" {
				assert.Nil(t, got)
			} else {
				require.NotNil(t, got)
				assert.Equal(t, c.want, got.ResourceVersion)
			}
			if c.cached != nil && c.cached.ResourceVersion == c.want || c.want == "" {
				assert.Empty(t, s.own, "what the cache shows is forgotten")
			}
		})
	}
}

func TestStoreForgets(t *testing.T) {
	s := newStore(shows{}, shows{}, time.Now)
	s.remember(serviceAt("7"), true)
	s.forget(serviceAt("6", func(s *corev1.Service) { s.UID = "0" }))
	assert.Len(t, s.own, 1, "an earlier one of that name")
	s.forget(serviceAt("7"))
	assert.Empty(t, s.own)

	s.remember(serviceAt("9"), false)
	s.remember(serviceAt("8"), true)
	assert.Equal(t, "9", s.own[idOf(serviceAt("9"))].obj.GetResourceVersion(), "answers may come in any order")
}

func TestStoreRemoves(t *testing.T) {
	f := newFixture(t, serviceAt("1", func(s *corev1.Service) { s.ResourceVersion = "" }))
	s := f.shared.client
	obj := &corev1.Service{}
	require.True(t, f.get(obj, "x"))
	id := idOf(obj)

	for _, refusal := range []error{errors.New("boom"), apierrors.NewConflict(schema.GroupResource{}, "x", nil)} {
		f.fail = func(string, client.Object) error {
			assert.False(t, s.own[id].gone, "not before it is sure")
			return refusal
		}
		require.Error(t, s.remove(t.Context(), obj))
		assert.False(t, s.own[id].gone)
	}
	f.fail = func(string, client.Object) error { return apierrors.NewNotFound(schema.GroupResource{}, "x") }
	require.NoError(t, s.remove(t.Context(), obj))

	f.fail = nil
	require.NoError(t, s.remove(t.Context(), obj))
	assert.Empty(t, s.own, "the cache knew before the answer came")

	going := obj.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: f.now}
	f.wrote()
	require.NoError(t, s.remove(t.Context(), going))
	assert.Empty(t, f.wrote(), "it is going already")
}

func TestDiff(t *testing.T) {
	have := serviceAt("1", func(s *corev1.Service) {
		s.Labels = map[string]string{"keep": "1", "change": "1", "drop": "1"}
		s.Annotations = map[string]string{"drop": "1"}
		s.Spec.Selector = map[string]string{"a": "1"}
	})
	assert.Empty(t, diff(have, have.DeepCopy()))
	want := have.DeepCopy()
	want.Labels = map[string]string{"keep": "1", "change": "2", "add": ""}
	want.Annotations = nil
	want.OwnerReferences = []metav1.OwnerReference{foreignRef}
	want.Spec.Selector["a"] = "2"
	assert.Equal(t, fields{
		"metadata": fields{
			"labels":          fields{"change": "2", "drop": nil, "add": ""},
			"annotations":     nil,
			"ownerReferences": want.OwnerReferences,
		},
		"spec": fields{"selector": fields{"a": "2"}},
	}, diff(have, want))
	want = have.DeepCopy()
	want.Labels = map[string]string{}
	assert.Equal(t, fields{"metadata": fields{"labels": fields{"keep": nil, "change": nil, "drop": nil}}}, diff(have, want))
}
