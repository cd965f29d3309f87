package env

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long a test waits for what should happen soon; a busy machine may need much more than an idle one.
const patience = time.Minute

// WaitFor reads the object that the name and namespace of object say, into object, until the condition holds. It ends
// the test if that takes longer than a minute.
func (e *Env) WaitFor(t testing.TB, object client.Object, what string, condition func() bool) {
	t.Helper()
	e.poll(t, object, what, func(err error) bool { return err == nil && condition() })
}

// WaitGone waits until there is no such object, or another one of that name if object has a UID.
func (e *Env) WaitGone(t testing.TB, object client.Object) {
	t.Helper()
	uid := object.GetUID()
	e.poll(t, object, "to be gone", func(err error) bool {
		return apierrors.IsNotFound(err) || err == nil && uid != "" && object.GetUID() != uid
	})
}

func (e *Env) poll(t testing.TB, object client.Object, what string, until func(error) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	key := client.ObjectKeyFromObject(object)
	for {
		err := e.read(ctx, key, object) // not found, or the API server is away: perhaps not any more in a moment
		if until(err) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %s for %T %s %s; it is:\n%s", patience, object, key, what, dump(object, err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// read gets the object into a fresh value, since decoding into a used one would leave what the answer does not mention.
func (e *Env) read(ctx context.Context, key client.ObjectKey, object client.Object) error {
	fresh := reflect.New(reflect.TypeOf(object).Elem())
	err := e.Client.Get(ctx, key, fresh.Interface().(client.Object))
	if err == nil {
		reflect.ValueOf(object).Elem().Set(fresh.Elem())
	}
	return err
}

func dump(object client.Object, err error) string {
	if err != nil {
		return err.Error()
	}
	text, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return fmt.Sprint(object)
	}
	return string(text)
}
