{{/* Subjects of the backend's Role, complete: those of the values, then those of the keys that charts up to 1.0.2 had. */}}
{{- define "agent-sandbox.backendSubjects" -}}
{{- $subjects := concat (list) .Values.backendRBAC.subjects (.Values.backendRBAC.additionalSubjects | default list) -}}
{{- with .Values.backendRBAC.serviceAccount -}}
{{- $account := kindIs "string" . | ternary (dict "name" .) . -}}
{{- $subjects = append $subjects (dict "kind" "ServiceAccount" "name" $account.name "namespace" $account.namespace) -}}
{{- end -}}
{{- range $subjects }}
- kind: {{ .kind }}
  name: {{ .name | quote }}
  {{- if eq .kind "ServiceAccount" }}
  namespace: {{ .namespace | default $.Release.Namespace }}
  {{- else }}
  apiGroup: {{ .apiGroup | default "rbac.authorization.k8s.io" }}
  {{- end }}
{{- end }}
{{- end -}}
