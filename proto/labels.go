package proto

import (
	"fmt"
	"hash/fnv"
)

// API groups, and the prefixes of the keys that no pod template may push onto a Pod.
const (
	GroupAgents     = "agents.x-k8s.io"
	GroupExtensions = "extensions.agents.x-k8s.io"

	PrefixAgents     = GroupAgents + "/"
	PrefixExtensions = GroupExtensions + "/"
)

// Labels.
const (
	LabelSandboxNameHash     = PrefixAgents + "sandbox-name-hash"         // Pod, Service, PVC, EndpointSlice: NameHash(sandbox name)
	LabelWarmPool            = PrefixAgents + "warm-pool-sandbox"         // unclaimed pool Sandbox and its Pod: NameHash(pool name)
	LabelTemplateRefHash     = PrefixAgents + "sandbox-template-ref-hash" // Template, Sandbox, Pod: NameHash(template name)
	LabelTemplateHash        = PrefixAgents + "sandbox-template-hash"     // pool Sandbox: hash of the template's blueprint
	LabelPodTemplateHash     = PrefixAgents + "sandbox-pod-template-hash" // deprecated twin of LabelTemplateHash
	LabelLaunchType          = PrefixAgents + "launch-type"               // Sandbox: LaunchWarm or LaunchCold
	LabelCreatedBy           = PrefixAgents + "created-by"                // Claim, Sandbox, Pod
	LabelClaimUID            = PrefixAgents + "claim-uid"                 // Sandbox of a claim
	LabelAdoptable           = PrefixAgents + "adoptable"                 // "true" on a user's object authorises its adoption
	LabelAssignedSandboxName = PrefixAgents + "sandbox-name"              // deprecated: now the annotation of the same key
)

// Values of LabelLaunchType.
const (
	LaunchWarm = "warm"
	LaunchCold = "cold"
)

// Annotations.
const (
	AnnotationPodName                 = PrefixAgents + "pod-name"
	AnnotationTemplateRef             = PrefixAgents + "sandbox-template-ref"
	AnnotationPropagatedLabels        = PrefixAgents + "propagated-labels"
	AnnotationPropagatedAnnotations   = PrefixAgents + "propagated-annotations"
	AnnotationAssignedSandboxName     = PrefixAgents + "sandbox-name"
	AnnotationControllerFirstObserved = PrefixAgents + "controller-first-observed-at"
	AnnotationClaimFirstReady         = PrefixAgents + "claim-first-ready-at"
	AnnotationClientFirstRequested    = PrefixAgents + "client-first-requested-at"
	AnnotationWebhookFirstObserved    = PrefixAgents + "webhook-first-observed-at"
	AnnotationPreferredZone           = PrefixAgents + "preferred-zone"
	AnnotationTraceContext            = "opentelemetry.io/trace-context"
	AnnotationSafeToEvict             = "cluster-autoscaler.kubernetes.io/safe-to-evict"
)

// Annotations of the EndpointSlices that the controller publishes for the router.
const (
	AnnotationRouteState = PrefixAgents + "route-state" // one of the RouteState values
	AnnotationRouteClaim = PrefixAgents + "claim-name"  // name of the claim that the Sandbox serves, if any
)

// SliceManagedBy is the value of the label endpointslice.kubernetes.io/managed-by on published slices.
const SliceManagedBy = "agent-sandbox-controller"

// RouteState says what a published route leads to.
type RouteState string

// States of a route.
const (
	RouteRunning    RouteState = "Running"    // an endpoint may be dialled when it is ready
	RouteStarting   RouteState = "Starting"   // the pod is on its way: hold requests
	RouteSuspending RouteState = "Suspending" // hold new requests, let the old ones end
	RouteSuspended  RouteState = "Suspended"  // no pod until the Sandbox is resumed
	RouteFinished   RouteState = "Finished"   // the pod ended and is not replaced
	RouteExpired    RouteState = "Expired"    // the Sandbox passed its shutdown time
)

// NameHash is the FNV-1a 32-bit hash of s as eight lower-case hexadecimal digits. Labels carry it where a name may be
// too long for a label value; clients recompute it.
func NameHash(s string) string {
	h := fnv.New32a()
	h.Write([]byte(s))
	return fmt.Sprintf("%08x", h.Sum32())
}
