package reconcile

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fields is one level of a JSON merge patch (RFC 7396): a nil value deletes the key, a list replaces the whole list.
type fields = map[string]any

// mergePatch makes a JSON merge patch of body. Patches are built by hand because a diff of two whole objects costs more
// than the rest of a pass. Body must be marshalable, as every type of the Kubernetes API is.
func mergePatch(body any) client.Patch {
	data, err := json.Marshal(body)
	if err != nil {
		panic("BUG: merge patch cannot be marshalled: " + err.Error())
	}
	return client.RawPatch(types.MergePatchType, data)
}

// metaChange collects changes to the metadata of one object. Its zero value changes nothing.
type metaChange struct {
	labels          fields
	annotations     fields
	owners          []metav1.OwnerReference // replaces the whole list unless nil
	resourceVersion string                  // optimistic lock unless empty
}

func (c *metaChange) setLabel(key, value string)      { set(&c.labels, key, value) }
func (c *metaChange) deleteLabel(key string)          { set(&c.labels, key, nil) }
func (c *metaChange) setAnnotation(key, value string) { set(&c.annotations, key, value) }
func (c *metaChange) deleteAnnotation(key string)     { set(&c.annotations, key, nil) }

func set(f *fields, key string, value any) {
	if *f == nil {
		*f = fields{}
	}
	(*f)[key] = value
}

// empty reports whether the change would leave the object as it is. A lock alone changes nothing.
func (c *metaChange) empty() bool {
	return len(c.labels) == 0 && len(c.annotations) == 0 && c.owners == nil
}

// body is the value of the key "metadata" in a merge patch, for patches that change more than metadata.
func (c *metaChange) body() fields {
	m := fields{}
	if len(c.labels) > 0 {
		m["labels"] = c.labels
	}
	if len(c.annotations) > 0 {
		m["annotations"] = c.annotations
	}
	if c.owners != nil {
		m["ownerReferences"] = c.owners
	}
	if c.resourceVersion != "" {
		m["resourceVersion"] = c.resourceVersion
	}
	return m
}

// patch is the merge patch that makes the change.
func (c *metaChange) patch() client.Patch {
	return mergePatch(fields{"metadata": c.body()})
}

// patcher is what client.Client and client.StatusWriter have in common here.
type patcher[O any] interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...O) error
}

// applyPatch sends patch for the object named by obj and returns the object as the server has it now. The answer goes
// into a fresh object: decoding into one in use would keep map keys that the patch deleted, and obj may belong to the cache.
func applyPatch[T any, O any, P interface {
	*T
	client.Object
}](ctx context.Context, w patcher[O], obj P, patch client.Patch) (P, error) {
	fresh := P(new(T))
	fresh.SetNamespace(obj.GetNamespace())
	fresh.SetName(obj.GetName())
	if err := w.Patch(ctx, fresh, patch); err != nil {
		return nil, err
	}
	return fresh, nil
}
