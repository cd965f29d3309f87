// Package v1beta1 holds the types of the API group extensions.agents.x-k8s.io: SandboxTemplate, SandboxWarmPool and SandboxClaim.
//
// +kubebuilder:object:generate=true
// +groupName=extensions.agents.x-k8s.io
package v1beta1

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentsv1beta1 "github.com/dovakiin0/agent-sandbox/proto/agents/v1beta1"
)

// NetworkPolicyManagement says who writes the NetworkPolicy of a template's sandboxes.
//
// +kubebuilder:validation:Enum=Managed;Unmanaged
type NetworkPolicyManagement string

// Values of NetworkPolicyManagement.
const (
	NetworkPolicyManaged   NetworkPolicyManagement = "Managed"
	NetworkPolicyUnmanaged NetworkPolicyManagement = "Unmanaged"
)

// EnvVarsInjectionPolicy rules spec.env of claims.
//
// +kubebuilder:validation:Enum=Allowed;Overrides;Disallowed
type EnvVarsInjectionPolicy string

// Values of EnvVarsInjectionPolicy.
const (
	EnvVarsAllowed    EnvVarsInjectionPolicy = "Allowed"
	EnvVarsOverrides  EnvVarsInjectionPolicy = "Overrides"
	EnvVarsDisallowed EnvVarsInjectionPolicy = "Disallowed"
)

// VolumeClaimTemplatesPolicy rules spec.volumeClaimTemplates of claims.
//
// +kubebuilder:validation:Enum=Disallowed;Allowed;Overrides
type VolumeClaimTemplatesPolicy string

// Values of VolumeClaimTemplatesPolicy.
const (
	VolumeClaimTemplatesDisallowed VolumeClaimTemplatesPolicy = "Disallowed"
	VolumeClaimTemplatesAllowed    VolumeClaimTemplatesPolicy = "Allowed"
	VolumeClaimTemplatesOverrides  VolumeClaimTemplatesPolicy = "Overrides"
)

// NetworkPolicySpec replaces the default rules of a template's NetworkPolicy. The pod selector and the policy types
// are always the controller's.
type NetworkPolicySpec struct {
	// ingress admits traffic to the sandboxes; an empty list admits none.
	// +optional
	Ingress []networkingv1.NetworkPolicyIngressRule `json:"ingress,omitempty"`
	// egress admits traffic from the sandboxes; an empty list admits none.
	// +optional
	Egress []networkingv1.NetworkPolicyEgressRule `json:"egress,omitempty"`
}

// SandboxTemplateSpec describes the sandboxes made from a template.
type SandboxTemplateSpec struct {
	agentsv1beta1.SandboxBlueprint `json:",inline"`
	// networkPolicy replaces the default rules of the NetworkPolicy that all sandboxes of the template share.
	// +optional
	NetworkPolicy *NetworkPolicySpec `json:"networkPolicy,omitempty"`
	// networkPolicyManagement turns the shared NetworkPolicy off with Unmanaged.
	// +optional
	// +kubebuilder:default=Managed
	NetworkPolicyManagement NetworkPolicyManagement `json:"networkPolicyManagement,omitempty"`
	// envVarsInjectionPolicy rules spec.env of claims.
	// +optional
	// +kubebuilder:default=Disallowed
	EnvVarsInjectionPolicy EnvVarsInjectionPolicy `json:"envVarsInjectionPolicy,omitempty"`
	// volumeClaimTemplatesPolicy rules spec.volumeClaimTemplates of claims.
	// +optional
	// +kubebuilder:default=Disallowed
	VolumeClaimTemplatesPolicy VolumeClaimTemplatesPolicy `json:"volumeClaimTemplatesPolicy,omitempty"`
}

// SandboxTemplate is a blueprint of sandboxes. It has no status.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=sandboxtemplate
type SandboxTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +required
	Spec SandboxTemplateSpec `json:"spec"`
}

// SandboxTemplateList is a list of SandboxTemplates.
//
// +kubebuilder:object:root=true
type SandboxTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxTemplate `json:"items"`
}

// SandboxTemplateRef names a SandboxTemplate of the same namespace.
type SandboxTemplateRef struct {
	// +required
	Name string `json:"name"`
}

// UpdateStrategyType says what happens to pool members whose template changed.
//
// +kubebuilder:validation:Enum=Recreate;OnReplenish
type UpdateStrategyType string

// Update strategies of a SandboxWarmPool.
const (
	UpdateRecreate    UpdateStrategyType = "Recreate"    // stale members are deleted at once
	UpdateOnReplenish UpdateStrategyType = "OnReplenish" // stale members stay until they are claimed or deleted
)

// UpdateStrategy says how a pool follows its template.
type UpdateStrategy struct {
	// +optional
	// +kubebuilder:default=OnReplenish
	Type UpdateStrategyType `json:"type,omitempty"`
}

// SandboxWarmPoolSpec is the desired state of a warm pool.
type SandboxWarmPoolSpec struct {
	// replicas is the number of unclaimed sandboxes to keep.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// sandboxTemplateRef names the template of the members.
	// +required
	TemplateRef SandboxTemplateRef `json:"sandboxTemplateRef"`
	// +optional
	UpdateStrategy *UpdateStrategy `json:"updateStrategy,omitempty"`
}

// SandboxWarmPoolStatus is the observed state of a warm pool. Zero counts are left out.
type SandboxWarmPoolStatus struct {
	// replicas counts the members that are not terminating.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// readyReplicas counts those of them that are Ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// selector matches the members, as agents.x-k8s.io/warm-pool-sandbox=<hash>.
	// +optional
	Selector string `json:"selector,omitempty"`
	// observedGeneration is the generation last reconciled.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// SandboxWarmPool keeps sandboxes started ahead of the claims for them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:scope=Namespaced,shortName=swp
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=".status.readyReplicas"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=".spec.replicas"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type SandboxWarmPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +required
	Spec SandboxWarmPoolSpec `json:"spec"`
	// +optional
	Status SandboxWarmPoolStatus `json:"status,omitempty,omitzero"`
}

// SandboxWarmPoolList is a list of SandboxWarmPools.
//
// +kubebuilder:object:root=true
type SandboxWarmPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxWarmPool `json:"items"`
}

// ClaimShutdownPolicy says what happens to a claim when it expires.
//
// +kubebuilder:validation:Enum=Delete;DeleteForeground;Retain
type ClaimShutdownPolicy string

// Shutdown policies of a SandboxClaim.
const (
	ClaimShutdownDelete           ClaimShutdownPolicy = "Delete"           // the claim goes, its sandbox follows
	ClaimShutdownDeleteForeground ClaimShutdownPolicy = "DeleteForeground" // the claim goes after its sandbox and pod
	ClaimShutdownRetain           ClaimShutdownPolicy = "Retain"           // the sandbox goes, the claim stays
)

// SandboxWarmPoolRef names a SandboxWarmPool of the same namespace.
type SandboxWarmPoolRef struct {
	// +required
	Name string `json:"name"`
}

// ClaimLifecycle bounds the life of a claim.
type ClaimLifecycle struct {
	// shutdownTime is the moment at which the claim expires.
	// +optional
	// +kubebuilder:validation:Format=date-time
	ShutdownTime *metav1.Time `json:"shutdownTime,omitempty"`
	// ttlSecondsAfterFinished expires the claim so many seconds after its sandbox finished.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
	// +optional
	// +kubebuilder:default=Retain
	ShutdownPolicy ClaimShutdownPolicy `json:"shutdownPolicy,omitempty"`
}

// EnvVar is an environment variable for a container of the claimed sandbox.
type EnvVar struct {
	// +required
	Name string `json:"name"`
	// +required
	Value string `json:"value"`
	// containerName is the container to set it in, the first one when empty.
	// +optional
	ContainerName string `json:"containerName,omitempty"`
}

// SandboxClaimSpec asks for a sandbox.
type SandboxClaimSpec struct {
	// warmPoolRef names the pool that serves the claim, and with it the template of a cold start.
	// +required
	WarmPoolRef SandboxWarmPoolRef `json:"warmPoolRef"`
	// +optional
	Lifecycle *ClaimLifecycle `json:"lifecycle,omitempty"`
	// additionalPodMetadata is merged into the metadata of the sandbox's pod template.
	// +optional
	AdditionalPodMetadata agentsv1beta1.PodMetadata `json:"additionalPodMetadata,omitempty,omitzero"`
	// env forces a cold start and needs the template's envVarsInjectionPolicy.
	// +optional
	// +listType=atomic
	Env []EnvVar `json:"env,omitempty"`
	// volumeClaimTemplates forces a cold start and needs the template's volumeClaimTemplatesPolicy.
	// +optional
	// +listType=atomic
	VolumeClaimTemplates []agentsv1beta1.PersistentVolumeClaimTemplate `json:"volumeClaimTemplates,omitempty"`
}

// ClaimedSandbox names the sandbox that serves a claim.
type ClaimedSandbox struct {
	// +optional
	Name string `json:"name,omitempty"`
	// +optional
	PodIPs []string `json:"podIPs,omitempty"`
}

// SandboxClaimStatus is the observed state of a claim.
type SandboxClaimStatus struct {
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// sandbox is the sandbox bound to the claim.
	// +optional
	Sandbox ClaimedSandbox `json:"sandbox,omitempty,omitzero"`
}

// SandboxClaim asks a warm pool for one sandbox.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=sandboxclaim
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Sandbox",type=string,JSONPath=".status.sandbox.name"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type SandboxClaim struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +required
	Spec SandboxClaimSpec `json:"spec"`
	// +optional
	Status SandboxClaimStatus `json:"status,omitempty,omitzero"`
}

// SandboxClaimList is a list of SandboxClaims.
//
// +kubebuilder:object:root=true
type SandboxClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SandboxClaim `json:"items"`
}
