package reconcile

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownWriteTTL bounds how long a write is remembered. Watch events come within milliseconds; an object that is created and
// deleted while a watch is broken never shows at all, and must not be believed in for ever.
const ownWriteTTL = 10 * time.Second

// ownWrites remembers objects as this process last wrote them until the cache shows that version or a newer one. A pass
// that acted on less than its own last writes would repeat them. Safe for concurrent use; what it returns is shared and
// must not be changed.
type ownWrites[T client.Object] struct {
	now func() time.Time

	mu    sync.Mutex
	byKey map[types.NamespacedName]ownWrite[T]
}

type ownWrite[T client.Object] struct {
	obj T
	at  time.Time
}

func newOwnWrites[T client.Object](now func() time.Time) *ownWrites[T] {
	return &ownWrites[T]{now: now, byKey: map[types.NamespacedName]ownWrite[T]{}}
}

// record remembers obj, the server's answer to a create, update or patch.
func (w *ownWrites[T]) record(obj T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byKey[client.ObjectKeyFromObject(obj)] = ownWrite[T]{obj: obj, at: w.now()}
}

// forget drops the object, once it was seen to be deleted.
func (w *ownWrites[T]) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byKey, key)
}

// newest returns the newer of the cached object and the remembered one. found says whether the cache has one; a
// remembered object that the cache does not have counts as created a moment ago.
func (w *ownWrites[T]) newest(key types.NamespacedName, cached T, found bool) (T, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	own, ok := w.byKey[key]
	if !ok {
		return cached, found
	}
	if w.now().Sub(own.at) < ownWriteTTL && (!found || newer(own.obj, cached)) {
		return own.obj, true
	}
	delete(w.byKey, key)
	return cached, found
}

// echoes reports whether an object, as a watch event shows it, holds nothing but what this process wrote itself or has
// seen before it wrote. An entry that the cache has caught up with is dropped.
func (w *ownWrites[T]) echoes(obj T) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(obj)
	own, ok := w.byKey[key]
	if !ok || newer(obj, own.obj) {
		delete(w.byKey, key)
		return false
	}
	if !newer(own.obj, obj) {
		delete(w.byKey, key)
	}
	return true
}

// pending reports whether a write is remembered that the last read did not find in the cache.
func (w *ownWrites[T]) pending(key types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.byKey[key]
	return ok
}

// get reads an object into an empty one, or returns the newer version that is remembered. found is false when neither the
// cache nor the memory has it; the object is the empty one then.
func (w *ownWrites[T]) get(ctx context.Context, cache client.Reader, key types.NamespacedName, empty T) (obj T, found bool, err error) {
	err = cache.Get(ctx, key, empty, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return empty, false, err
	}
	obj, found = w.newest(key, empty, err == nil)
	return obj, found, nil
}

func newer(a, b client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}
