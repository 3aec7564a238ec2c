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
{{- if .Values.tls.secretName -}}
exec:
  command: ["msprobe-server", "--probe=unix:/run/msprobe/server.sock"]
{{- else -}}
grpc:
  port: 50051
{{- end }}
{{- end }}

{{- define "msprobe.shards" -}}
{{- $name := include "msprobe.name" . -}}
{{- range $pod := until (int .Values.replicas) }}{{ if $pod }},{{ end }}{{ $name }}-{{ $pod }}.{{ $name }}-headless.{{ $.Release.Namespace }}.svc:50051{{ end }}
{{- end }}

{{- define "msprobe.conf" -}}
listen = 0.0.0.0:50051,unix:/run/msprobe/server.sock
data_dir = /var/lib/msprobe/data
metrics_listen = 0.0.0.0:9090
insecure = true
{{- if .Values.tls.secretName }}
tls_cert = /etc/msprobe-tls/tls.crt
tls_key = /etc/msprobe-tls/tls.key
{{- if .Values.tls.clientCa }}
tls_client_ca = /etc/msprobe-tls/{{ .Values.tls.clientCa }}
{{- end }}
{{- end }}
{{- if .Values.tokens.secretName }}
{{- if not .Values.tls.secretName }}{{ fail "tokens.secretName needs tls.secretName: tokens would be readable on their way" }}{{ end }}
tokens = /etc/msprobe-tokens/tokens
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- if has $name (list "listen" "data_dir" "metrics_listen" "insecure" "tls_cert" "tls_key" "tls_client_ca" "tokens") }}
{{- fail (printf "settings.%s is written by the chart" $name) }}
{{- end }}
{{ $name }} = {{ $value }}
{{- end }}
{{- end }}
