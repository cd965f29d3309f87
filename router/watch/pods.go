package watch

import (
	"github.com/dovakiin0/agent-sandbox/proto"
	"github.com/dovakiin0/agent-sandbox/router/route"
	corev1 "k8s.io/api/core/v1"
)

// fromPod reads one Pod, for clusters whose controller publishes no EndpointSlices. A Pod is a sandbox's when a
// Sandbox controls it, and is routable only after it left the warm pool: by name, by UID, or by anything else.
// It returns the number of addresses that it did not believe beside.
func fromPod(pod *corev1.Pod, loopback bool) (p *part, invalid int) {
	sandbox, uid, _ := owner(pod)
	if _, unclaimed := pod.Labels[proto.LabelWarmPool]; unclaimed {
		sandbox = ""
	}
	p = newPart(pod, sandbox, uid)
	if p.sandbox == "" {
		return p, 0
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		p.state = route.StateFinished
		return p, 0
	}
	condition := podCondition(pod)
	zone := shared(pod.Labels[corev1.LabelTopologyZone])
	for _, ip := range pod.Status.PodIPs {
		addr, ok := believable(ip.IP, loopback)
		if !ok {
			invalid++
			continue
		}
		p.endpoints = append(p.endpoints, route.Address{
			Addr: addr, PodUID: string(pod.UID), Zone: zone, Condition: condition,
		})
	}
	return p, invalid
}

func podCondition(pod *corev1.Pod) route.Condition {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type != corev1.PodReady || c.Status != corev1.ConditionTrue {
			continue
		}
		if pod.DeletionTimestamp != nil {
			return route.Terminating
		}
		return route.Ready
	}
	return route.NotReady
}
