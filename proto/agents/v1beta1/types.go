// Package v1beta1 holds the Sandbox type of the API group agents.x-k8s.io.
//
// +kubebuilder:object:generate=true
// +groupName=agents.x-k8s.io
package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OperatingMode is the mode that a Sandbox should be in.
//
// +kubebuilder:validation:Enum=Running;Suspended
type OperatingMode string

// Operating modes.
const (
	OperatingModeRunning   OperatingMode = "Running"
	OperatingModeSuspended OperatingMode = "Suspended"
)

// ShutdownPolicy says what happens to a Sandbox object when its shutdown time has passed. Its Pod and Service go either way.
//
// +kubebuilder:validation:Enum=Delete;Retain
type ShutdownPolicy string

// Shutdown policies of a Sandbox.
const (
	ShutdownPolicyDelete ShutdownPolicy = "Delete"
	ShutdownPolicyRetain ShutdownPolicy = "Retain"
)

// ConditionType is the type of a condition of a Sandbox.
type ConditionType string

// Conditions of a Sandbox.
const (
	ConditionReady        ConditionType = "Ready"
	ConditionSuspended    ConditionType = "Suspended"
	ConditionPodScheduled ConditionType = "PodScheduled"
	ConditionFinished     ConditionType = "Finished"
)

// PodMetadata is the part of a Pod's metadata that a template may set.
type PodMetadata struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PodTemplate describes the Pod that a Sandbox runs.
type PodTemplate struct {
	// spec is the specification of the Pod.
	// +required
	Spec corev1.PodSpec `json:"spec"`
	// metadata is copied to the Pod, without keys of the agents.x-k8s.io groups.
	// +optional
	Metadata PodMetadata `json:"metadata,omitempty,omitzero"`
}

// PersistentVolumeClaimMetadata is the part of a PersistentVolumeClaim's metadata that a template may set.
type PersistentVolumeClaimMetadata struct {
	// name is the name of the volume in the Pod; the PersistentVolumeClaim is called <name>-<sandbox name>.
	// +optional
	Name string `json:"name,omitempty"`
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PersistentVolumeClaimTemplate describes a PersistentVolumeClaim that a Sandbox owns.
type PersistentVolumeClaimTemplate struct {
	// +optional
	Metadata PersistentVolumeClaimMetadata `json:"metadata,omitempty,omitzero"`
	// +required
	Spec corev1.PersistentVolumeClaimSpec `json:"spec"`
}

// SandboxBlueprint is what a Sandbox and a SandboxTemplate have in common. Where volumeClaimTemplates may change is
// decided by the type that embeds it.
type SandboxBlueprint struct {
	// podTemplate describes the Pod to run. Changes never touch a running Pod.
	// +required
	PodTemplate PodTemplate `json:"podTemplate"`
	// volumeClaimTemplates makes one PersistentVolumeClaim for each entry, kept until the Sandbox is deleted.
	// +optional
	// +listType=atomic
	VolumeClaimTemplates []PersistentVolumeClaimTemplate `json:"volumeClaimTemplates,omitempty"`
	// service asks for a headless Service of the Sandbox's name. Unset creates none and keeps one that exists; false deletes it.
	// +optional
	Service *bool `json:"service,omitempty"`
}

// SandboxSpec is the desired state of a Sandbox.
//
// +kubebuilder:validation:XValidation:rule="has(self.volumeClaimTemplates) == has(oldSelf.volumeClaimTemplates) && (!has(self.volumeClaimTemplates) || self.volumeClaimTemplates == oldSelf.volumeClaimTemplates)",message="volumeClaimTemplates is immutable"
type SandboxSpec struct {
	SandboxBlueprint `json:",inline"`
	// shutdownTime is the moment at which the Sandbox expires.
	// +optional
	// +kubebuilder:validation:Format=date-time
	ShutdownTime *metav1.Time `json:"shutdownTime,omitempty"`
	// shutdownPolicy says what happens to the object when it expires.
	// +optional
	// +kubebuilder:default=Retain
	ShutdownPolicy *ShutdownPolicy `json:"shutdownPolicy,omitempty"`
	// operatingMode is the desired mode. Suspended removes the Pod and keeps volumes and Service.
	// +optional
	// +kubebuilder:default=Running
	OperatingMode OperatingMode `json:"operatingMode,omitempty"`
}

// SandboxStatus is the observed state of a Sandbox.
type SandboxStatus struct {
	// serviceFQDN is the DNS name of the Service, <service>.<namespace>.svc.<cluster domain>.
	// +optional
	ServiceFQDN string `json:"serviceFQDN,omitempty"`
	// service is the name of the Service.
	// +optional
	Service string `json:"service,omitempty"`
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// selector matches the Pod, as agents.x-k8s.io/sandbox-name-hash=<hash>.
	// +optional
	LabelSelector string `json:"selector,omitempty"`
	// podIPs are the addresses of the Pod, while the Sandbox owns one.
	// +optional
	PodIPs []string `json:"podIPs,omitempty"`
	// nodeName is the node of the Pod.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
}

// Sandbox is one isolated Pod with a stable identity.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=sandbox
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type Sandbox struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +required
	Spec SandboxSpec `json:"spec"`
	// +optional
	Status SandboxStatus `json:"status,omitempty,omitzero"`
}

// SandboxList is a list of Sandboxes.
//
// +kubebuilder:object:root=true
type SandboxList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Sandbox `json:"items"`
}
