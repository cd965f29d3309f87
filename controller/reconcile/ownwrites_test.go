package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestOwnWrites(t *testing.T) {
	now := time.Now()
	version := func(rv string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", ResourceVersion: rv}}
	}
	key := client.ObjectKeyFromObject(version(""))
	for name, c := range map[string]struct {
		written, cached string // resource versions, "" for none
		age             time.Duration
		want            string
	}{
		"nothing written":           {"", "5", 0, "5"},
		"nothing anywhere":          {"", "", 0, ""},
		"created, not shown":        {"7", "", 0, "7"},
		"written, cache behind":     {"10", "9", 0, "10"},
		"written, cache there":      {"10", "10", 0, "10"},
		"written, cache ahead":      {"9", "10", 0, "10"},
		"created long ago":          {"7", "", ownWriteTTL, ""},
		"written long ago":          {"10", "9", ownWriteTTL, "9"},
		"not a number is not newer": {"x", "9", 0, "9"},
	} {
		t.Run(name, func(t *testing.T) {
			clock := now
			w := newOwnWrites[*corev1.Pod](func() time.Time { return clock })
			if c.written != "" {
				w.record(version(c.written))
			}
			clock = clock.Add(c.age)
			got, found := w.newest(key, version(c.cached), c.cached != "")
			assert.Equal(t, c.want != "", found)
			if found {
				assert.Equal(t, c.want, got.ResourceVersion)
			}
			if c.cached == c.want {
				assert.Empty(t, w.byKey, "what the cache shows is forgotten")
			}
		})
	}

	w := newOwnWrites[*corev1.Pod](time.Now)
	w.record(version("7"))
	w.forget(key)
	_, found := w.newest(key, nil, false)
	assert.False(t, found)
}

func TestDeferrals(t *testing.T) {
	d := newDeferrals()
	key, now := types.NamespacedName{Name: "a"}, time.Now()
	assert.Equal(t, 3*time.Second, d.wait(key, 3*time.Second, now))
	assert.Equal(t, time.Second, d.wait(key, 3*time.Second, now.Add(2*time.Second)), "counted from the first call")
	assert.Equal(t, time.Duration(0), d.wait(key, 3*time.Second, now.Add(3*time.Second)))
	assert.Equal(t, 3*time.Second, d.wait(key, 3*time.Second, now.Add(3*time.Second)), "the next one waits anew")
	d.done(key)
	assert.Empty(t, d.due)
}
