package fakeapi

import (
	"testing"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/tools/clientcmd"
)

func slice(name, label string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{label: "x"}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
}

// The server is used as the real one is: by the client library.
func TestListAndWatch(t *testing.T) {
	s := New()
	defer s.Close()
	path, err := s.Kubeconfig(t.TempDir(), s.Addr())
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := v1.NewForConfig(config)
	require.NoError(t, err)
	api := client.EndpointSlices("")

	s.Set(slice("a", "wanted"))
	s.Set(slice("b", "unwanted"))
	selected := metav1.ListOptions{LabelSelector: "wanted"}
	list, err := api.List(t.Context(), selected)
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.Equal(t, "a", list.Items[0].Name)

	selected.ResourceVersion = list.ResourceVersion
	w, err := api.Watch(t.Context(), selected)
	require.NoError(t, err)
	next := func() (watch.EventType, metav1.Object) {
		e := <-w.ResultChan()
		o, _ := e.Object.(metav1.Object)
		return e.Type, o
	}
	s.Set(slice("b", "unwanted"))
	version := s.Set(slice("a", "wanted"))
	event, o := next()
	require.Equal(t, watch.Modified, event)
	require.Equal(t, version, o.GetResourceVersion())
	version = s.Delete(slice("a", "wanted"))
	event, o = next()
	require.Equal(t, watch.Deleted, event)
	require.Equal(t, version, o.GetResourceVersion())
	w.Stop()

	s.Compact()
	_, err = api.Watch(t.Context(), selected)
	require.True(t, apierrors.IsResourceExpired(err), "%v", err)

	s.Set(slice("c", "wanted"))
	initial := true
	w, err = api.Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &initial, LabelSelector: "wanted", AllowWatchBookmarks: true})
	require.NoError(t, err)
	event, o = next()
	require.Equal(t, watch.Added, event)
	require.Equal(t, "c", o.GetName())
	event, o = next()
	require.Equal(t, watch.Bookmark, event)
	require.Equal(t, "true", o.GetAnnotations()[metav1.InitialEventsAnnotationKey])
	w.Stop()
}
