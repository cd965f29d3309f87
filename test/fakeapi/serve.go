package fakeapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkEvery is how often a silent watch says that nothing happened.
const bookmarkEvery = time.Minute

var (
	codecs   = serializer.NewCodecFactory(newScheme())
	protobuf = protobufInfo()
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	return s
}

func protobufInfo() runtime.SerializerInfo {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		panic("no serializer for " + runtime.ContentTypeProtobuf)
	}
	return info
}

// call is one request, understood.
type call struct {
	*Server
	w         http.ResponseWriter
	r         *http.Request
	gv        schema.GroupVersion
	resource  string
	namespace string
	selector  labels.Selector
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	intercept := s.intercept
	s.mu.Unlock()
	if intercept != nil {
		intercept.ServeHTTP(w, r)
		return
	}
	s.ServeHTTP(w, r)
}

// ServeHTTP answers a request that was not intercepted, or that the interceptor passes on.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	c := call{Server: s, w: w, r: r}
	switch {
	case len(path) > 2 && path[0] == "api":
		c.gv, path = schema.GroupVersion{Version: path[1]}, path[2:]
	case len(path) > 3 && path[0] == "apis":
		c.gv, path = schema.GroupVersion{Group: path[1], Version: path[2]}, path[3:]
	}
	if len(path) > 2 && path[0] == "namespaces" {
		c.namespace, path = path[1], path[2:]
	}
	c.resource = path[0]
	var err error
	if c.selector, err = labels.Parse(r.URL.Query().Get("labelSelector")); err != nil {
		c.fail(apierrors.NewBadRequest(err.Error()))
		return
	}
	switch {
	case len(path) == 2:
		c.get(path[1])
	case r.URL.Query().Get("watch") == "true":
		c.watch()
	default:
		c.list()
	}
}

func (c *call) fail(err *apierrors.StatusError) {
	c.answer(int(err.ErrStatus.Code), metav1.SchemeGroupVersion, &err.ErrStatus)
}

func (c *call) answer(code int, gv schema.GroupVersion, o runtime.Object) {
	c.w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	c.w.WriteHeader(code)
	_ = codecs.EncoderForVersion(protobuf.Serializer, gv).Encode(o, c.w)
}

func (c *call) get(name string) {
	c.mu.Lock()
	o := c.objects[key{c.resource, c.namespace, name}]
	c.mu.Unlock()
	if o == nil {
		c.fail(apierrors.NewNotFound(schema.GroupResource{Group: c.gv.Group, Resource: c.resource}, name))
		return
	}
	c.answer(http.StatusOK, c.gv, o)
}

func (c *call) list() {
	objects, version := c.Snapshot(c.resource, c.namespace)
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10)}
	slices := &discoveryv1.EndpointSliceList{ListMeta: meta}
	pods := &corev1.PodList{ListMeta: meta}
	for _, o := range objects {
		if !c.selector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		switch o := o.(type) {
		case *discoveryv1.EndpointSlice:
			slices.Items = append(slices.Items, *o)
		case *corev1.Pod:
			pods.Items = append(pods.Items, *o)
		}
	}
	if c.resource == "pods" {
		c.answer(http.StatusOK, c.gv, pods)
	} else {
		c.answer(http.StatusOK, c.gv, slices)
	}
}

// watch streams changes until the client leaves, after all objects when it asks for a streaming list.
func (c *call) watch() {
	q := c.r.URL.Query()
	version, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	initial := q.Get("sendInitialEvents") == "true"
	if _, _, _, err := c.since(c.resource, c.namespace, version); err != nil && !initial {
		c.fail(apierrors.NewResourceExpired(err.Error()))
		return
	}
	c.w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	c.w.WriteHeader(http.StatusOK)
	s := stream{call: c, frames: protobuf.StreamSerializer.Framer.NewFrameWriter(c.w)}
	if initial {
		var objects []Object
		objects, version = c.Snapshot(c.resource, c.namespace)
		for _, o := range objects {
			s.send(watch.Added, o)
		}
		s.bookmark(version, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	tick := time.NewTicker(bookmarkEvery)
	defer tick.Stop()
	for {
		changes, now, more, err := c.since(c.resource, c.namespace, version)
		if err != nil {
			s.write(watch.Error, metav1.SchemeGroupVersion, &apierrors.NewResourceExpired(err.Error()).ErrStatus)
			return
		}
		for _, change := range changes {
			s.send(change.event, change.object)
		}
		version = now
		if s.flush() != nil {
			return
		}
		select {
		case <-c.r.Context().Done():
			return
		case <-tick.C:
			s.bookmark(version, nil)
		case <-more:
		}
	}
}
