//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/dovakiin0/agent-sandbox/proto"
)

const namespace = "default"

// hosts are the addresses that pods have by turns, less their first byte: 10 in slices, 127 where they listen.
var hosts = []string{".251.0.1", ".251.0.2", ".251.0.3", ".251.0.4"}

// podServers answer for all pods, each with its own address.
type podServers []*http.Server

func servePods() (podServers, error) {
	var all podServers
	for _, host := range hosts {
		l, err := net.Listen("tcp", fmt.Sprintf("127%s:%d", host, proto.DefaultPort))
		if err != nil {
			all.close()
			return nil, err
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "10"+host) })}
		go func() { _ = s.Serve(l) }()
		all = append(all, s)
	}
	return all, nil
}

func (p podServers) close() {
	for _, s := range p {
		s.Close()
	}
}

// fleet writes the EndpointSlices of sandboxes.
type fleet struct{ client rest.Interface }

func newFleet(_ context.Context, config *rest.Config) (*fleet, error) {
	c := rest.CopyConfig(config)
	gv := discoveryv1.SchemeGroupVersion
	c.GroupVersion, c.APIPath, c.QPS = &gv, "/apis", -1
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(c)
	return &fleet{client}, err
}

func name(i int) string { return fmt.Sprint("churn-", i) }

// slice is that of sandbox number i, whose pod has the given address.
func slice(i int, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name(i) + "-slice",
			Labels: map[string]string{
				proto.LabelSandboxNameHash: proto.NameHash(name(i)), discoveryv1.LabelServiceName: name(i),
				discoveryv1.LabelManagedBy: "churn",
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}
}

func (f *fleet) create(ctx context.Context, i int, address string) error {
	return f.client.Post().Namespace(namespace).Resource("endpointslices").Body(slice(i, address)).Do(ctx).Error()
}

// replace gives sandbox number i another pod.
func (f *fleet) replace(ctx context.Context, i int, address string) error {
	return f.client.Put().Namespace(namespace).Resource("endpointslices").Name(name(i) + "-slice").Body(slice(i, address)).Do(ctx).Error()
}

func (f *fleet) delete(ctx context.Context, i int) error {
	return f.client.Delete().Namespace(namespace).Resource("endpointslices").Name(name(i) + "-slice").Do(ctx).Error()
}

// fill creates sandboxes 0 to n-1.
func (f *fleet) fill(ctx context.Context, n int) error {
	const writers = 8
	var all sync.WaitGroup
	var once sync.Once
	var failed error
	for w := range writers {
		all.Go(func() {
			for i := w; i < n; i += writers {
				if err := f.create(ctx, i, "10"+hosts[0]); err != nil {
					once.Do(func() { failed = err })
					return
				}
			}
		})
	}
	all.Wait()
	return failed
}
