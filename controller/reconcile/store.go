package reconcile

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// ownWriteTTL is how long an object is believed in that this process created and the cache does not show. After that the
// API server is asked: watch events come within milliseconds, but one of an object that was created and deleted while a
// watch was broken never comes.
const ownWriteTTL = 10 * time.Second

// store reads from the cache and writes to the API server, and shows its own writes before the cache does: a pass that
// acted on less than the writes before it would repeat them, and a pool would make more members than it may. It never
// waits for the cache, as controller-runtime's own consistent client does, because events lag most when there is most to
// do. Safe for concurrent use. What it returns is shared and must not be changed.
type store struct {
	client.Client
	live client.Reader // reads from the API server
	now  func() time.Time

	mu  sync.Mutex
	own map[objectID]ownWrite
}

type objectID struct {
	kind reflect.Type
	types.NamespacedName
}

func idOf(obj client.Object) objectID {
	return objectID{reflect.TypeOf(obj), client.ObjectKeyFromObject(obj)}
}

// ownWrite is the server's answer to a write, kept until the cache shows that version or a newer one.
type ownWrite struct {
	obj    client.Object
	at     time.Time
	unseen bool // the cache may have no version of it yet
	gone   bool // it was deleted
}

// news reports whether the cache, which has cached, has yet to learn of the write.
func (w ownWrite) news(cached client.Object) bool {
	if w.gone {
		return cached.GetUID() == w.obj.GetUID() && cached.GetDeletionTimestamp().IsZero()
	}
	return newer(w.obj, cached)
}

func newer(a, b client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}

func newStore(c client.Client, live client.Reader, now func() time.Time) *store {
	return &store{Client: client.WithFieldOwner(c, fieldOwner), live: live, now: now, own: map[objectID]ownWrite{}}
}

// Get implements client.Reader.
func (s *store) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	id := objectID{reflect.TypeOf(obj), key}
	s.mu.Lock()
	own, known := s.own[id] // read before the cache: a write never goes from here before it is there
	s.mu.Unlock()
	err := s.Client.Get(ctx, key, obj, client.UnsafeDisableDeepCopy)
	if !known || client.IgnoreNotFound(err) != nil {
		return err
	}
	var cached client.Object
	if err == nil {
		cached = obj
	}
	newest, askErr := s.newest(ctx, id, own, cached)
	if askErr != nil {
		return askErr
	}
	if newest == nil {
		return err
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(newest).Elem())
	return nil
}

// get returns an object as s has it, nil when there is none.
func get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, s client.Reader, key client.ObjectKey) (P, error) {
	obj := P(new(T))
	if err := s.Get(ctx, key, obj); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return obj, nil
}

// list returns the objects of a namespace that an index has under value. It reads the cache into the list.
func list[P client.Object](ctx context.Context, s *store, into client.ObjectList, namespace, field, value string) ([]P, error) {
	index := indexes[slices.IndexFunc(indexes, func(i index) bool { return i.field == field })]
	kind, own := reflect.TypeFor[P](), map[objectID]ownWrite{}
	s.mu.Lock()
	for id, w := range s.own {
		if id.kind == kind && id.Namespace == namespace {
			own[id] = w
		}
	}
	s.mu.Unlock()
	var found []P
	add := func(id objectID, cached client.Object) (err error) {
		newest := cached
		if w, known := own[id]; known {
			newest, err = s.newest(ctx, id, w, cached)
			delete(own, id)
		}
		if newest != nil && slices.Contains(index.values(newest), value) {
			found = append(found, newest.(P))
		}
		return err
	}
	if err := s.List(ctx, into, client.InNamespace(namespace), client.MatchingFields{field: value}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	if err := meta.EachListItem(into, func(o runtime.Object) error {
		return add(idOf(o.(client.Object)), o.(client.Object))
	}); err != nil {
		return nil, err
	}
	for id, w := range own {
		if w.unseen && slices.Contains(index.values(w.obj), value) {
			if err := add(id, nil); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// newest returns the newer of what this process wrote and what the cache has, which is nil for nothing. The write is
// forgotten once the cache knows of it.
func (s *store) newest(ctx context.Context, id objectID, own ownWrite, cached client.Object) (client.Object, error) {
	switch {
	case cached != nil && own.news(cached), cached == nil && own.unseen && s.now().Sub(own.at) < ownWriteTTL:
		return own.obj, nil
	case cached == nil && own.unseen:
		obj := reflect.New(id.kind.Elem()).Interface().(client.Object)
		if err := s.live.Get(ctx, id.NamespacedName, obj); err == nil {
			s.remember(obj, true)
			return obj, nil
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own[id] == own {
		delete(s.own, id)
	}
	return cached, nil
}

// Create implements client.Writer. The object is shared from here on.
func (s *store) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	err := s.Client.Create(ctx, obj, opts...)
	if err == nil {
		s.remember(obj, true)
	}
	return err
}

// createOrGet creates the object, unless it exists and the cache does not show it yet: then obj becomes what the API
// server has.
func (s *store) createOrGet(ctx context.Context, obj client.Object) (existed bool, err error) {
	if err = s.Create(ctx, obj); !apierrors.IsAlreadyExists(err) {
		return false, err
	}
	key := client.ObjectKeyFromObject(obj)
	reflect.ValueOf(obj).Elem().SetZero()
	if err = s.live.Get(ctx, key, obj); err == nil {
		s.remember(obj, true)
	}
	return true, err
}

// remove deletes this very object, unless it is going already. That it is gone is no error.
func (s *store) remove(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if !obj.GetDeletionTimestamp().IsZero() {
		return nil
	}
	uid := obj.GetUID()
	err := s.Delete(ctx, obj, append([]client.DeleteOption{client.Preconditions{UID: &uid}}, opts...)...)
	if err == nil { // and not before: nobody may act on a deletion that is refused
		gone := obj.DeepCopyObject().(client.Object)
		gone.SetDeletionTimestamp(&metav1.Time{Time: s.now()})
		s.put(ownWrite{obj: gone, gone: true})
		// The event may have come before the answer, and does not come again. A read forgets what the cache knows.
		err = s.Get(ctx, client.ObjectKeyFromObject(obj), reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object))
	}
	return client.IgnoreNotFound(err)
}

// remember keeps obj, which the API server has just answered. Unseen says that the cache may have no version of it.
func (s *store) remember(obj client.Object, unseen bool) {
	if pod, ok := obj.(*corev1.Pod); ok {
		stripPod(pod) // as it is cached
	}
	s.put(ownWrite{obj: obj, unseen: unseen})
}

func (s *store) put(w ownWrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := idOf(w.obj)
	w.at = s.now()
	if have, ok := s.own[id]; ok && !w.gone {
		if newer(have.obj, w.obj) {
			return // the answers to two writes at once came in the other order
		}
		w.unseen = w.unseen || have.unseen
	}
	s.own[id] = w
}

// forgetDeleted is for every controller: it drops what is remembered of a deleted object before the pass that the event
// brings. after is called next.
func (s *store) forgetDeleted(after ...func(client.Object)) predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		s.forget(e.Object)
		for _, do := range after {
			do(e.Object)
		}
		return true
	}}
}

func (s *store) forget(obj client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own, ok := s.own[idOf(obj)]; ok && (own.obj.GetUID() == obj.GetUID() || own.obj.GetUID() == "") {
		delete(s.own, idOf(obj)) // and not what has been created under its name since
	}
}

// pending reports whether obj holds a write that the cache did not show when it was read.
func (s *store) pending(obj client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.own[idOf(obj)]
	return ok
}

// echoes reports whether an object, as a watch event shows it, holds nothing but what this process wrote itself or has
// seen before it wrote.
func (s *store) echoes(obj client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := idOf(obj)
	own, ok := s.own[id]
	if !ok || newer(obj, own.obj) {
		delete(s.own, id)
		return false
	}
	if !newer(own.obj, obj) {
		delete(s.own, id)
	}
	return true
}
