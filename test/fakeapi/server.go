// Package fakeapi is the part of a Kubernetes API server that the router reads, with what goes wrong on demand: list,
// streaming list and watch of EndpointSlices and Pods, and single Nodes, in protobuf over HTTP/2. It holds a hundred
// thousand objects easily, and does things that a real API server does only on its worst days.
package fakeapi

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Object is what the server holds: *EndpointSlice, *Pod or *Node.
type Object interface {
	runtime.Object
	metav1.Object
}

// Server is a running API server. Its methods are for any goroutine.
type Server struct {
	http *httptest.Server

	mu        sync.Mutex
	version   uint64
	objects   map[key]Object
	history   []change      // in the order of versions
	compacted uint64        // changes up to here are forgotten
	changed   chan struct{} // closed at the next change
	intercept http.Handler
}

type key struct{ resource, namespace, name string }

// change is one event of the history.
type change struct {
	version  uint64
	resource string
	event    watch.EventType
	object   Object
}

// New starts a server on a loopback address.
func New() *Server {
	s := &Server{objects: map[key]Object{}, changed: make(chan struct{}), version: 1}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.http.EnableHTTP2 = true
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that leave are no news
	s.http.StartTLS()
	return s
}

// Close ends the server and its connections.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Addr is the address that the server listens on.
func (s *Server) Addr() string { return s.http.Listener.Addr().String() }

// Kubeconfig writes a kubeconfig file into the folder that leads to addr, which is s.Addr() or that of a proxy before
// it, and returns the file's path.
func (s *Server) Kubeconfig(folder, addr string) (string, error) {
	c := clientcmdapi.NewConfig()
	c.Clusters["fake"] = &clientcmdapi.Cluster{Server: "https://" + addr, InsecureSkipTLSVerify: true}
	c.Contexts["fake"] = &clientcmdapi.Context{Cluster: "fake"}
	c.CurrentContext = "fake"
	path := filepath.Join(folder, "kubeconfig")
	data, err := clientcmd.Write(*c)
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, data, 0o600)
}

// Set creates or updates an object and returns its new version. The server keeps a copy.
func (s *Server) Set(o Object) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	event := watch.Modified
	k := keyOf(o)
	if s.objects[k] == nil {
		event = watch.Added
	}
	o = o.DeepCopyObject().(Object)
	s.objects[k] = o
	return s.record(k.resource, event, o)
}

// Delete deletes an object and returns the version of that.
func (s *Server) Delete(o Object) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := keyOf(o)
	known := s.objects[k]
	if known == nil {
		return ""
	}
	delete(s.objects, k)
	return s.record(k.resource, watch.Deleted, known.DeepCopyObject().(Object))
}

func (s *Server) record(resource string, event watch.EventType, o Object) string {
	s.version++
	o.SetResourceVersion(strconv.FormatUint(s.version, 10))
	s.history = append(s.history, change{s.version, resource, event, o})
	s.wake()
	return o.GetResourceVersion()
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Compact forgets the history: whoever watches from an older version than now gets 410 Gone.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history, s.compacted = nil, s.version
}

// Disconnect cuts all connections.
func (s *Server) Disconnect() { s.http.CloseClientConnections() }

// Intercept has every later request go to h, or when h is nil to the server again.
func (s *Server) Intercept(h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = h
}

// Snapshot returns the objects of a resource in a namespace, or in all when that is empty, and the version.
func (s *Server) Snapshot(resource, namespace string) (objects []Object, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, o := range s.objects {
		if k.resource == resource && (namespace == "" || namespace == k.namespace) {
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return objects, s.version
}

// since returns the changes of a resource after a version, the version they lead to, and what tells of more. It fails
// when some of them are forgotten.
func (s *Server) since(resource, namespace string, version uint64) ([]change, uint64, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.compacted {
		return nil, 0, nil, fmt.Errorf("too old resource version: %d (%d)", version, s.compacted)
	}
	first, _ := slices.BinarySearchFunc(s.history, version+1, func(c change, v uint64) int { return cmp.Compare(c.version, v) })
	var changes []change
	for _, c := range s.history[first:] {
		if c.resource == resource && (namespace == "" || namespace == c.object.GetNamespace()) {
			changes = append(changes, c)
		}
	}
	return changes, s.version, s.changed, nil
}

func keyOf(o Object) key {
	k := key{namespace: o.GetNamespace(), name: o.GetName()}
	switch o.(type) {
	case *discoveryv1.EndpointSlice:
		k.resource = "endpointslices"
	case *corev1.Pod:
		k.resource = "pods"
	case *corev1.Node:
		k.resource = "nodes"
	}
	return k
}
