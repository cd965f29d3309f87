{{/* Names. Release and namespace are in them, so that releases get along. A release may have dots, a Service may not. */}}

{{- define "agent-sandbox.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "agent-sandbox.fullname" -}}
{{- $name := include "agent-sandbox.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 44 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 44 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 44 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "agent-sandbox.namespace" -}}
{{- .Release.Namespace -}}
{{- end -}}

{{- define "agent-sandbox.sandboxNamespace" -}}
{{- default .Release.Namespace .Values.sandboxNamespace -}}
{{- end -}}

{{/* Name of an object that is not in a namespace. A colon is in no namespace, so two releases never share one. */}}
{{- define "agent-sandbox.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "agent-sandbox.fullname" .) -}}
{{- end -}}

{{- define "agent-sandbox.controllerName" -}}
{{- include "agent-sandbox.fullname" . }}-controller
{{- end -}}

{{- define "agent-sandbox.routerName" -}}
{{- include "agent-sandbox.fullname" . }}-router
{{- end -}}

{{/* Arguments: root; account, a serviceAccount of the values; name, the Deployment's. */}}
{{- define "agent-sandbox.serviceAccountName" -}}
{{- .account.name | default (ternary .name "default" .account.create) -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "agent-sandbox.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "agent-sandbox.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: agent-sandbox
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with omit .Values.commonLabels "helm.sh/chart" "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/part-of" "app.kubernetes.io/managed-by" "app.kubernetes.io/component" "app" }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels that select the pods of a component of this release. Arguments: root, component. */}}
{{- define "agent-sandbox.selectorLabels" -}}
app.kubernetes.io/name: {{ include "agent-sandbox.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of a component's objects. Arguments: root, component. */}}
{{- define "agent-sandbox.componentLabels" -}}
{{ include "agent-sandbox.labels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Labels of a component's pods: app is the one that the API's users know, and that managed NetworkPolicies admit. Those
that select win over the values'. None tells the chart's version, or every upgrade would replace every pod. Arguments:
root, component, app, labels. */}}
{{- define "agent-sandbox.podLabels" -}}
{{- $own := include "agent-sandbox.selectorLabels" . | fromYaml -}}
{{- with .app }}{{ $_ := set $own "app" . }}{{ end -}}
{{- toYaml (merge $own (deepCopy .labels) (omit .root.Values.commonLabels "app")) -}}
{{- end -}}

{{/* A scalar as it was written: Helm reads numbers as floats, and prints large ones as 1e+09. */}}
{{- define "agent-sandbox.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- printf "%d" (int64 .) -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* Image reference. Arguments: root; image, a string or a map. */}}
{{- define "agent-sandbox.image" -}}
{{- if kindIs "string" .image -}}
{{- .image -}}
{{- else if not .image.repository -}}
{{- fail (printf "An image has no repository: %s." (toJson .image)) -}}
{{- else if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Pull policy of an image. */}}
{{- define "agent-sandbox.pullPolicy" -}}
{{- if kindIs "string" . }}IfNotPresent{{ else }}{{ .pullPolicy }}{{ end -}}
{{- end -}}

{{/* What the restricted Pod Security Standard asks of a container. The argument tells whether its root is read-only. */}}
{{- define "agent-sandbox.containerSecurityContext" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
privileged: false
readOnlyRootFilesystem: {{ . }}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* Fields of a pod that the values give as they are. */}}
{{- define "agent-sandbox.scheduling" -}}
{{- $fields := dict -}}
{{- range $name := list "priorityClassName" "nodeSelector" "tolerations" "affinity" -}}
{{- with get $ $name }}{{ $_ := set $fields $name . }}{{ end -}}
{{- end -}}
{{- with $fields }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* A quantity as a number, 0 for what is none. */}}
{{- define "agent-sandbox.quantity" -}}
{{- $factor := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- $text := include "agent-sandbox.scalar" . -}}
{{- if regexMatch "^[0-9]+([.][0-9]*)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$" $text -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (index $factor (regexFind "[A-Za-z]*$" $text)) -}}
{{- else -}}
0
{{- end -}}
{{- end -}}

{{/* Environment of a Go program: its share of the limits, then the values'. Arguments: env, resources. */}}
{{- define "agent-sandbox.goEnv" -}}
{{- $names := list -}}
{{- range .env }}{{ $names = append $names .name }}{{ end -}}
{{- $limits := (.resources | default dict).limits | default dict -}}
{{- $memory := include "agent-sandbox.quantity" (default 0 $limits.memory) | float64 -}}
{{- $cpu := include "agent-sandbox.quantity" (default 0 $limits.cpu) | float64 -}}
{{- $own := list -}}
{{- if and $memory (not (has "GOMEMLIMIT" $names)) -}}
{{- $own = append $own (dict "name" "GOMEMLIMIT" "value" (mulf $memory 0.9 | int64 | toString)) -}}
{{- end -}}
{{- if and $cpu (not (has "GOMAXPROCS" $names)) -}}
{{- $own = append $own (dict "name" "GOMAXPROCS" "value" (ceil $cpu | int64 | toString)) -}}
{{- end -}}
{{- with concat $own (.env | default list) }}{{ toYaml . }}{{ end -}}
{{- end -}}
