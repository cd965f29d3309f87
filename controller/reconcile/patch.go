package reconcile

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fields is one level of a JSON merge patch (RFC 7396): a nil value deletes the key, a list replaces the whole list.
type fields = map[string]any

// Whether a write is refused if the object has changed since it was read.
const (
	locked   = true
	unlocked = false
)

// apiObject is a pointer to a type of the API.
type apiObject[T any] interface {
	*T
	client.Object
	DeepCopy() *T
}

// patch makes a change to an object, which is shared, and returns it as the API server has it then, or as it was in case of
// an error. Nothing is written when the change changes nothing. One call changes the status or all the rest.
func patch[T any, P apiObject[T]](ctx context.Context, s *store, have P, lock bool, change func(P)) (P, error) {
	want := P(have.DeepCopy())
	change(want)
	return write(ctx, s, have, want, lock)
}

// write is patch for a change that was made to a copy before.
func write[T any, P apiObject[T]](ctx context.Context, s *store, have, want P, lock bool) (P, error) {
	body := diff(have, want)
	if len(body) == 0 {
		return have, nil
	}
	if lock {
		metadata, ok := body["metadata"].(fields)
		if !ok {
			metadata = fields{}
			body["metadata"] = metadata
		}
		metadata["resourceVersion"] = have.GetResourceVersion()
	}
	send := send[T, P]
	if _, status := body["status"]; status || lock {
		send = sendKnown
	}
	fresh, err := send(ctx, s, want, body)
	if err != nil {
		return have, err
	}
	s.remember(fresh, false)
	return fresh, nil
}

// replace is patch with a lock, except that the whole object is sent, which is less work for the API server. It takes away
// fields that this program does not know, so it is not for objects with a PodSpec, which newer clusters may know more of.
func replace[T any, P apiObject[T]](ctx context.Context, s *store, have P, change func(P)) (P, error) {
	want := P(have.DeepCopy())
	change(want)
	body := diff(have, want)
	if len(body) == 0 {
		return have, nil
	}
	var err error
	if _, status := body["status"]; status {
		err = s.Status().Update(ctx, want)
	} else {
		err = s.Update(ctx, want)
	}
	if err != nil {
		return have, err
	}
	s.remember(want, false)
	return want, nil
}

// send sends the patch that makes an object what want is, and returns the answer without remembering it. The answer goes into
// a fresh object: decoding into one in use would keep map keys that the patch deleted.
func send[T any, P apiObject[T]](ctx context.Context, s *store, want P, body fields) (P, error) {
	fresh := P(new(T))
	fresh.SetNamespace(want.GetNamespace())
	fresh.SetName(want.GetName())
	return fresh, sendFor(ctx, s, fresh, body)
}

// sendKnown is send for a patch that leaves nothing unknown but metadata, so that the API server need not answer more. Of a
// patch of the status without a lock that is so unless others have changed the rest, or made the object anew.
func sendKnown[T any, P apiObject[T]](ctx context.Context, s *store, want P, body fields) (P, error) {
	gvk, err := s.GroupVersionKindFor(want)
	if err != nil {
		return nil, err
	}
	answer := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: want.GetNamespace(), Name: want.GetName()}}
	answer.SetGroupVersionKind(gvk)
	if err := sendFor(ctx, s, answer, body); err != nil {
		return nil, err
	}
	if _, status := body["status"]; status && (answer.Generation != want.GetGeneration() || answer.UID != want.GetUID()) {
		fresh := P(new(T))
		return fresh, s.live.Get(ctx, client.ObjectKeyFromObject(want), fresh)
	}
	reflect.ValueOf(want).Elem().FieldByName("ObjectMeta").Set(reflect.ValueOf(answer.ObjectMeta))
	return want, nil
}

// sendFor sends the patch for the object named by answer, which becomes what the API server answers.
func sendFor(ctx context.Context, s *store, answer client.Object, body fields) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	merge := client.RawPatch(types.MergePatchType, data)
	if _, status := body["status"]; status {
		return s.Status().Patch(ctx, answer, merge)
	}
	return s.Patch(ctx, answer, merge)
}

// diff returns the merge patch that turns one object into another. It compares the Go values: the usual way, by the JSON
// of both whole objects, costs more than the rest of a pass.
func diff[T any](have, want *T) fields {
	body := fields{}
	diffStruct(reflect.ValueOf(have).Elem(), reflect.ValueOf(want).Elem(), body)
	return body
}

func diffStruct(have, want reflect.Value, body fields) {
	for i := range have.NumField() {
		field, a, b := have.Type().Field(i), have.Field(i), want.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		sub := fields{}
		switch {
		case name == "" && field.Anonymous:
			diffStruct(a, b, body)
			continue
		case equality.Semantic.DeepEqual(a.Interface(), b.Interface()):
			continue
		case strings.Contains(options, "omit") && (b.IsZero() || b.Kind() == reflect.Slice && b.Len() == 0):
			body[name] = nil
			continue
		case a.Kind() == reflect.Map:
			diffMap(a, b, sub)
		case a.Kind() == reflect.Struct && !field.Type.Implements(reflect.TypeFor[json.Marshaler]()):
			diffStruct(a, b, sub)
		default:
			body[name] = b.Interface()
			continue
		}
		body[name] = sub
	}
}

func diffMap(have, want reflect.Value, body fields) {
	for _, key := range have.MapKeys() {
		if !want.MapIndex(key).IsValid() {
			body[key.String()] = nil
		}
	}
	for _, key := range want.MapKeys() {
		a, b := have.MapIndex(key), want.MapIndex(key)
		if !a.IsValid() || !equality.Semantic.DeepEqual(a.Interface(), b.Interface()) {
			body[key.String()] = b.Interface()
		}
	}
}
