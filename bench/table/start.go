//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovakiin0/agent-sandbox/bench/proc"
	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/test/fakeapi"
	"github.com/dovakiin0/agent-sandbox/test/process"
)

// start is what one start of the router took.
type start struct {
	ready          time.Duration // from the start of the process until it says that it is ready
	cpu            time.Duration // of the router until then
	atReady, later int64         // resident memory then, and when the garbage of the start is gone
}

// later is when resident memory is read again. The Go runtime runs a collection after two minutes without one, and
// gives memory back after that.
const later = 150 * time.Second

// measure starts a router with n sandboxes.
func measure(ctx context.Context, router string, n int) (s start, err error) {
	api := fakeapi.New()
	defer api.Close()
	for i := range n {
		api.Set(slice(i))
	}
	dir, err := os.MkdirTemp("", "table-")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(dir)
	kubeconfig, err := api.Kubeconfig(dir, api.Addr())
	if err != nil {
		return s, err
	}
	health, err := freeAddress()
	if err != nil {
		return s, err
	}
	begin := time.Now()
	p, err := process.Start(process.Command{Path: router, Output: os.Stderr, Args: []string{
		"--kubeconfig=" + kubeconfig, "--http-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0",
		"--health-probe-bind-address=" + health, "--log-level=warn",
	}})
	if err != nil {
		return s, err
	}
	defer p.Stop(10 * time.Second)
	if err := waitReady(ctx, p, health); err != nil {
		return s, err
	}
	s.ready = time.Since(begin)
	pids := []int{p.PID()}
	usage, err := proc.UsageOf(pids)
	if err != nil {
		return s, err
	}
	s.cpu, s.atReady = usage.CPU, proc.Resident(pids)
	select {
	case <-ctx.Done():
		return s, ctx.Err()
	case <-time.After(later):
	}
	s.later = proc.Resident(pids)
	return s, nil
}

func waitReady(ctx context.Context, p *process.Process, health string) error {
	for {
		response, err := http.Get("http://" + health + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.Done():
			return errors.New("the router ended")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// slice is the EndpointSlice of sandbox number i as the controller publishes it, with managed fields and names of 57
// bytes.
func slice(i int) *discoveryv1.EndpointSlice {
	name, claim := longName("sandbox", i), longName("claim", i)
	yes, no := true, false
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "tenant", Name: name + "-route", UID: uid('e', i), CreationTimestamp: metav1.Unix(1_700_000_000, 0),
			Labels: map[string]string{
				discoveryv1.LabelManagedBy: proto.SliceManagedBy, proto.LabelSandboxNameHash: proto.NameHash(name),
			},
			Annotations: map[string]string{
				proto.AnnotationRouteState: string(proto.RouteRunning), proto.AnnotationRouteClaim: claim,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: proto.GroupAgents + "/v1beta1", Kind: "Sandbox", Name: name, UID: uid('a', i), Controller: &yes, BlockOwnerDeletion: &yes,
			}},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: proto.SliceManagedBy, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "discovery.k8s.io/v1",
				FieldsV1: metav1.NewFieldsV1(`{"f:addressType":{},"f:endpoints":{},"f:metadata":{"f:annotations":{},"f:labels":{},"f:ownerReferences":{}},"f:ports":{}}`),
			}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "tenant", Name: name, UID: uid('b', i)},
			Zone:       new("zone-a"), NodeName: new("node-a"),
		}},
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(proto.DefaultPort)), Protocol: new(corev1.ProtocolTCP)}},
	}
}

func longName(kind string, i int) string {
	s := fmt.Sprint(kind, "-", i, "-")
	return s + strings.Repeat("x", 57-len(s))
}

func uid(kind byte, i int) types.UID {
	return types.UID(fmt.Sprintf("%c%07x-aaaa-bbbb-cccc-0123456789ab", kind, i))
}
