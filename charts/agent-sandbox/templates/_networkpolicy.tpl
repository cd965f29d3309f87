{{/* Parts of the NetworkPolicies. The kubelet's probes need no rule: a pod always admits its own node. */}}

{{/* Arguments: port; from, peers. */}}
{{- define "agent-sandbox.metricsIngress" -}}
- ports: [{port: {{ .port }}, protocol: TCP}]
  {{- with .from }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "agent-sandbox.apiServerEgress" -}}
- to:
    {{- range .Values.networkPolicy.apiServer.cidrs }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  ports:
    {{- range .Values.networkPolicy.apiServer.ports }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end -}}

{{/* Rule for the DNS of sandboxes. */}}
{{- define "agent-sandbox.dnsEgress" -}}
{{- if ne .mode "none" -}}
- to:
    {{- if eq .mode "public" }}
    {{- range .nameservers }}
    - ipBlock: {cidr: {{ printf "%s/%d" . (contains ":" . | ternary 128 32) | quote }}}
    {{- end }}
    {{- else }}
    {{- toYaml .to | nindent 4 }}
    {{- with .nodeLocalCIDR }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
    {{- end }}
  ports:
    {{- range .ports }}
    - {port: {{ . }}, protocol: UDP}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end }}
{{- end -}}
