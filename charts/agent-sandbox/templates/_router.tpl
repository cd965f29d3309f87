{{/* The router's settings that values other than router.config decide, as YAML. Their flags may not be in extraArgs. */}}
{{- define "agent-sandbox.routerOwnSettings" -}}
{{- $r := .Values.router -}}
http-bind-address: {{ ternary (printf ":%d" (int $r.ports.http)) "" (gt (int $r.ports.http) 0) | quote }}
https-bind-address: {{ ternary (printf ":%d" (int $r.ports.https)) "" $r.tls.enabled | quote }}
metrics-bind-address: {{ printf ":%d" (int $r.ports.metrics) | quote }}
health-probe-bind-address: {{ printf ":%d" (int $r.ports.probes) | quote }}
{{- if $r.tls.enabled }}
tls-cert-file: /etc/sandbox-router/tls/tls.crt
tls-key-file: /etc/sandbox-router/tls/tls.key
{{- if ne $r.tls.clientAuth "off" }}
tls-client-ca-file: /etc/sandbox-router/{{ if $r.tls.clientCASecretName }}client-ca{{ else }}tls{{ end }}/ca.crt
{{- end }}
{{- end }}
mtls-mode: {{ $r.tls.clientAuth | quote }}
authz-mode: {{ include "agent-sandbox.authMode" . }}
{{- with include "agent-sandbox.authFileFlag" . }}
{{ . }}: /etc/sandbox-router/auth/token
{{- end }}
proxy-timeout: {{ include "agent-sandbox.scalar" $r.proxyTimeoutSeconds }}s
websocket-idle-timeout: {{ include "agent-sandbox.scalar" $r.websocketIdleTimeoutSeconds }}s
websocket-max-lifetime: {{ include "agent-sandbox.scalar" $r.websocketMaxLifetimeSeconds }}s
websocket-max-connections-per-client: {{ include "agent-sandbox.scalar" $r.websocketMaxConnectionsPerClient | quote }}
trusted-proxy-cidrs: {{ join "," $r.trustedProxyCIDRs | quote }}
namespace: {{ $r.watchNamespace | quote }}
drain-delay: {{ include "agent-sandbox.scalar" $r.drain.delaySeconds }}s
shutdown-timeout: {{ include "agent-sandbox.scalar" $r.drain.shutdownSeconds }}s
{{- end -}}

{{/* The file of --config. Every value is a string, which the router reads as it would read the flag. */}}
{{- define "agent-sandbox.routerConfig" -}}
{{- $settings := include "agent-sandbox.routerOwnSettings" . | fromYaml -}}
{{- range $key, $value := .Values.router.config -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $settings $key (include "agent-sandbox.scalar" $value) }}{{ end -}}
{{- end -}}
{{- range $key, $value := $settings }}
{{- if or $value (ne $key "kubeconfig") }}{{/* Empty, it would win over KUBECONFIG in router.env. */}}
{{ $key }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Not empty if the router has a port without TLS. */}}
{{- define "agent-sandbox.servesHTTP" -}}
{{- if gt (int .Values.router.ports.http) 0 }}yes{{ end -}}
{{- end -}}

{{- define "agent-sandbox.discovery" -}}
{{- .Values.router.config.discovery | default "endpointslices" -}}
{{- end -}}

{{/* Not empty if the router asks the API server for its node's zone. */}}
{{- define "agent-sandbox.readsNodes" -}}
{{- $r := .Values.router -}}
{{- if and $r.readNodes (not $r.watchNamespace) (not $r.config.zone) (ne (include "agent-sandbox.discovery" .) "file") }}yes{{ end -}}
{{- end -}}

{{- define "agent-sandbox.authMode" -}}
{{- if .Values.router.allowUnauthenticated }}allow-all{{ else }}{{ .Values.router.auth.mode }}{{ end -}}
{{- end -}}

{{/* The flag that names the file of the Secret, empty if there is none. */}}
{{- define "agent-sandbox.authFileFlag" -}}
{{- get (dict "static-token" "authz-static-token-file" "scoped-token" "authz-scoped-token-secret-file") (include "agent-sandbox.authMode" .) -}}
{{- end -}}

{{- define "agent-sandbox.authSecretName" -}}
{{- .Values.router.auth.existingSecret | default (printf "%s-auth" (include "agent-sandbox.routerName" .)) -}}
{{- end -}}

{{- define "agent-sandbox.tlsSecretName" -}}
{{- .Values.router.tls.secretName | default (printf "%s-tls" (include "agent-sandbox.routerName" .)) -}}
{{- end -}}

{{/* Port of the Service that Ingress and HTTPRoute lead to: plain HTTP, which they can always speak, else TLS. */}}
{{- define "agent-sandbox.routerBackendPort" -}}
{{- if include "agent-sandbox.servesHTTP" . }}{{ .Values.router.service.port }}{{ else }}{{ .Values.router.service.httpsPort }}{{ end -}}
{{- end -}}

{{/* Seconds that a drain takes at most. */}}
{{- define "agent-sandbox.drainSeconds" -}}
{{- $drain := .Values.router.drain -}}
{{- addf $drain.delaySeconds $drain.shutdownSeconds $drain.marginSeconds | ceil | int64 -}}
{{- end -}}

{{- define "agent-sandbox.routerGracePeriod" -}}
{{- $drain := include "agent-sandbox.drainSeconds" . -}}
{{- $grace := include "agent-sandbox.scalar" .Values.router.terminationGracePeriodSeconds | default $drain -}}
{{- if lt (int $grace) (int $drain) -}}
{{- fail (printf "router.terminationGracePeriodSeconds is %s, but router.drain takes up to %s: the kubelet would kill the router in the middle of exchanges. Raise the grace period or shorten drain.delaySeconds, drain.shutdownSeconds or drain.marginSeconds." $grace $drain) -}}
{{- end -}}
{{- $grace -}}
{{- end -}}

{{/* Fails the render with a sentence for what cannot work. */}}
{{- define "agent-sandbox.checkRouter" -}}
{{- $r := .Values.router -}}
{{- if not (or $r.tls.enabled (include "agent-sandbox.servesHTTP" .)) -}}
{{- fail "router.ports.http is 0 and router.tls.enabled is false: the router would serve nothing." -}}
{{- end -}}
{{- if and (ne $r.tls.clientAuth "off") (not $r.tls.enabled) -}}
{{- fail "router.tls.clientAuth needs router.tls.enabled: client certificates are part of TLS." -}}
{{- end -}}
{{- if and $r.tls.enabled (not $r.tls.secretName) (not $r.tls.certManager.enabled) -}}
{{- fail "router.tls.enabled needs a certificate: set router.tls.secretName, or router.tls.certManager.enabled." -}}
{{- end -}}
{{- if and $r.tls.enabled $r.tls.certManager.enabled (not $r.tls.certManager.issuerRef) -}}
{{- fail "router.tls.certManager needs issuerRef, for instance {kind: ClusterIssuer, name: letsencrypt}." -}}
{{- end -}}
{{- $owned := include "agent-sandbox.routerOwnSettings" . | fromYaml | keys -}}
{{- $owned = concat $owned (list "config" "tls-cert-file" "tls-key-file" "tls-client-ca-file" "authz-static-token-file" "authz-scoped-token-secret-file") -}}
{{- range $r.extraArgs -}}
{{- $flag := regexFind "^--?[^=]+" . | trimPrefix "-" | trimPrefix "-" -}}
{{- if has $flag $owned -}}
{{- fail (printf "router.extraArgs: --%s is set by another value of the chart, which the rest depends on: change it there." $flag) -}}
{{- end -}}
{{- end -}}
{{- end -}}
