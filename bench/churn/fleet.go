//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// pods are servers that answer for all pods, each with its own address. Sandboxes have them by turns.
type pods struct {
	addresses []string // as slices have them; the servers listen at 127 instead of 10
	servers   []*http.Server
}

func servePods() (*pods, error) {
	const few = 4
	p := &pods{}
	for range 100 {
		if len(p.servers) == few {
			return p, nil
		}
		suffix := fmt.Sprintf("%d.%d.%d", 240+rand.IntN(15), rand.IntN(256), 1+rand.IntN(254))
		l, err := net.Listen("tcp", fmt.Sprintf("127.%s:%d", suffix, proto.DefaultPort))
		if err != nil {
			continue // another process has it
		}
		address := "10." + suffix
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, address) })}
		go func() { _ = s.Serve(l) }()
		p.addresses, p.servers = append(p.addresses, address), append(p.servers, s)
	}
	p.close()
	return nil, errors.New("no free loopback addresses")
}

func (p *pods) close() {
	for _, s := range p.servers {
		s.Close()
	}
}

// fleet writes the EndpointSlices of sandboxes.
type fleet struct{ client rest.Interface }

func newFleet(config *rest.Config) (*fleet, error) {
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

// fill creates sandboxes 0 to n-1 with one pod.
func (f *fleet) fill(ctx context.Context, n int, address string) error {
	const writers = 8
	var all sync.WaitGroup
	var once sync.Once
	var failed error
	for w := range writers {
		all.Go(func() {
			for i := w; i < n; i += writers {
				if err := f.create(ctx, i, address); err != nil {
					once.Do(func() { failed = err })
					return
				}
			}
		})
	}
	all.Wait()
	return failed
}
