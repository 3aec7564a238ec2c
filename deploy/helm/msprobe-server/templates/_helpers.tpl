{{- define "msprobe.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "msprobe.selector" -}}
app.kubernetes.io/name: msprobe-server
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "msprobe.labels" -}}
{{ include "msprobe.selector" . }}
app.kubernetes.io/part-of: msprobe
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "msprobe.handler" -}}
exec:
  command: ["msprobe-server", "--probe=unix:/run/msprobe/server.sock"]
{{- end }}

{{- define "msprobe.shards" -}}
{{- $name := include "msprobe.name" . -}}
{{- range $pod := until (int .Values.replicas) }}{{ if $pod }},{{ end }}{{ $name }}-{{ $pod }}.{{ $name }}-headless.{{ $.Release.Namespace }}.svc:50051{{ end }}
{{- end }}

{{- define "msprobe.check" -}}
{{- with .Values }}
{{- if and (not .tls.secretName) (or .tokens.secretName .tls.clientCa) }}
{{- fail "tls.secretName is empty: tokens would be readable on their way, and certificates of clients need it; name a Secret with tls.crt and tls.key" }}
{{- end }}
{{- if not .insecure }}
{{- if not .tls.secretName }}
{{- fail "tls.secretName is empty: name a Secret with tls.crt and tls.key, or set insecure=true for plain TCP that is open to whoever reaches it" }}
{{- end }}
{{- if not (or .tokens.secretName .tls.clientCa) }}
{{- fail "tokens.secretName is empty: name a Secret with tokens, or the authorities of clients in tls.clientCa, or set insecure=true for a server that is open to whoever reaches it" }}
{{- end }}
{{- end }}
{{- if gt (int .replicas) 1 }}
{{- if and .tls.secretName (not .tls.shardCa) }}
{{- fail "tls.shardCa is empty: several servers know each other by certificates; name the key of tls.secretName with their authority" }}
{{- end }}
{{- if and .tokens.secretName (not .tokens.shardToken) }}
{{- fail "tokens.shardToken is empty: several servers show each other a token of role admin; name the key of tokens.secretName with it" }}
{{- end }}
{{- if .persistence.existingClaim }}
{{- fail "persistence.existingClaim is for one server; with several, each has a claim made" }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "msprobe.mebibytes" -}}
{{- $size := .Values.persistence.size -}}
{{- $units := dict "Mi" 1.0 "Gi" 1024.0 "Ti" 1048576.0 "Pi" 1073741824.0 "M" 0.953674 "G" 953.674 "T" 953674.3 "P" 953674316.4 -}}
{{- mulf (regexFind "^[0-9.]+" $size) (get $units (regexFind "[A-Za-z]+$" $size)) | int64 -}}
{{- end }}

{{- define "msprobe.conf" -}}
{{- include "msprobe.check" . -}}
{{- $mebibytes := include "msprobe.mebibytes" . | int64 -}}
listen = 0.0.0.0:50051,unix:/run/msprobe/server.sock
data_dir = /var/lib/msprobe/data
metrics_listen = 0.0.0.0:9090
metrics_open = true
{{- if .Values.web.enabled }}
web_listen = 0.0.0.0:8080
{{- end }}
{{- if .Values.insecure }}
insecure = true
{{- end }}
{{- if .Values.tls.secretName }}
tls_cert = /etc/msprobe-tls/tls.crt
tls_key = /etc/msprobe-tls/tls.key
{{- if .Values.tls.clientCa }}
tls_client_ca = /etc/msprobe-tls/{{ .Values.tls.clientCa }}
{{- end }}
{{- end }}
{{- if .Values.tokens.secretName }}
tokens = /etc/msprobe-tokens/tokens
{{- end }}
{{- if not (hasKey .Values.settings "retain_mib") }}
retain_mib = {{ div (mul $mebibytes 4) 5 }}
{{- end }}
{{- if not (hasKey .Values.settings "run_quota_mib") }}
run_quota_mib = {{ div (mul $mebibytes 2) 5 }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- if has $name (list "listen" "data_dir" "metrics_listen" "metrics_open" "web_listen" "insecure" "tls_cert" "tls_key" "tls_client_ca" "tokens" "shards" "this_shard" "shard_ca" "shard_token_file") }}
{{- fail (printf "settings.%s is written by the chart" $name) }}
{{- end }}
{{ $name }} = {{ if kindIs "float64" $value }}{{ if eq (floor $value) $value }}{{ int64 $value }}{{ else }}{{ $value }}{{ end }}{{ else }}{{ $value }}{{ end }}
{{- end }}
{{- end }}
