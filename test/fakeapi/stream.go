package fakeapi

import (
	"bytes"
	"io"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// stream writes the events of one watch. After an error it stays silent.
type stream struct {
	*call
	frames io.Writer
	err    error
}

// send writes an event if the watch selects the object.
func (s *stream) send(event watch.EventType, o Object) {
	if s.selector.Matches(labels.Set(o.GetLabels())) {
		s.write(event, s.gv, o)
	}
}

func (s *stream) bookmark(version uint64, annotations map[string]string) {
	meta := metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(version, 10), Annotations: annotations}
	if s.resource == "pods" {
		s.write(watch.Bookmark, s.gv, &corev1.Pod{ObjectMeta: meta})
	} else {
		s.write(watch.Bookmark, s.gv, &discoveryv1.EndpointSlice{ObjectMeta: meta})
	}
}

func (s *stream) write(event watch.EventType, gv schema.GroupVersion, o runtime.Object) {
	if s.err != nil {
		return
	}
	var raw, frame bytes.Buffer
	if s.err = codecs.EncoderForVersion(protobuf.Serializer, gv).Encode(o, &raw); s.err != nil {
		return
	}
	e := &metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: raw.Bytes()}}
	if s.err = codecs.EncoderForVersion(protobuf.StreamSerializer.Serializer, s.gv).Encode(e, &frame); s.err == nil {
		_, s.err = s.frames.Write(frame.Bytes())
	}
}

func (s *stream) flush() error {
	if s.err == nil {
		s.w.(http.Flusher).Flush()
	}
	return s.err
}
