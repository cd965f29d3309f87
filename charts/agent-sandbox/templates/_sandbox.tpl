{{/* All templates of sandboxes as YAML, a list under the key items, each with all its keys. */}}
{{- define "agent-sandbox.templates" -}}
{{- $base := set (deepCopy .Values.sandboxTemplate) "security" .Values.security -}}
{{- $items := list -}}
{{- if $base.enabled }}{{ $items = append $items $base }}{{ end -}}
{{- range .Values.sandboxTemplates -}}
{{- $item := mergeOverwrite (deepCopy $base) (dict "enabled" true) (deepCopy .) -}}
{{- if $item.enabled }}{{ $items = append $items $item }}{{ end -}}
{{- end -}}
{{- include "agent-sandbox.checkNames" (dict "what" "sandboxTemplates" "items" $items) -}}
{{- dict "items" $items | toYaml -}}
{{- end -}}

{{/* All warm pools, likewise. */}}
{{- define "agent-sandbox.pools" -}}
{{- $base := deepCopy .Values.warmPool -}}
{{- $items := list -}}
{{- if $base.enabled }}{{ $items = append $items $base }}{{ end -}}
{{- range .Values.warmPools -}}
{{- $item := mergeOverwrite (deepCopy $base) (dict "enabled" true) (deepCopy .) -}}
{{- if $item.enabled }}{{ $items = append $items $item }}{{ end -}}
{{- end -}}
{{- include "agent-sandbox.checkNames" (dict "what" "warmPools" "items" $items) -}}
{{- $default := ternary .Values.sandboxTemplate.name "" .Values.sandboxTemplate.enabled -}}
{{- range $items -}}
{{- $_ := set . "template" (default $default .template) -}}
{{- if not .template -}}
{{- fail (printf "The warm pool %s has no template, because sandboxTemplate.enabled is false: set its template to the name of one, or its enabled to false." .name) -}}
{{- end -}}
{{- end -}}
{{- dict "items" $items | toYaml -}}
{{- end -}}

{{- define "agent-sandbox.checkNames" -}}
{{- $seen := dict -}}
{{- range .items -}}
{{- if hasKey $seen .name -}}
{{- fail (printf "%s: the name %s is there twice." $.what .name) -}}
{{- end -}}
{{- $_ := set $seen .name true -}}
{{- end -}}
{{- end -}}

{{/* Environment of a sandbox: where its files are, unless the values say so, then the values'. */}}
{{- define "agent-sandbox.sandboxEnv" -}}
{{- $names := list -}}
{{- range .env }}{{ $names = append $names .name }}{{ end -}}
{{- $own := list -}}
{{- range ternary (list "SANDBOX_BASE_DIR" "HOME") (list "SANDBOX_BASE_DIR") .security.readOnlyRootFilesystem -}}
{{- if not (has . $names) }}{{ $own = append $own (dict "name" . "value" $.workspace) }}{{ end -}}
{{- end -}}
{{- with concat $own .env }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{/* Volumes and mounts of a sandbox. A persistent workspace is a volume of the claim template of that name. */}}
{{- define "agent-sandbox.sandboxMounts" -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- $readOnly := .security.readOnlyRootFilesystem -}}
{{- if or .persistence.enabled $readOnly -}}
{{- $mounts = append $mounts (dict "name" "workspace" "mountPath" .workspace) -}}
{{- end -}}
{{- if and $readOnly (not .persistence.enabled) -}}
{{- $volumes = append $volumes (dict "name" "workspace" "emptyDir" dict) -}}
{{- end -}}
{{- if $readOnly -}}
{{- $volumes = append $volumes (dict "name" "tmp" "emptyDir" dict) -}}
{{- $mounts = append $mounts (dict "name" "tmp" "mountPath" "/tmp") -}}
{{- end -}}
{{- dict "volumes" (concat $volumes .extraVolumes) "mounts" (concat $mounts .extraVolumeMounts) | toYaml -}}
{{- end -}}
