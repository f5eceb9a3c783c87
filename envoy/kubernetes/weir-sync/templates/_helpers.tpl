{{- define "weir-sync.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "weir-sync.selector" -}}
app.kubernetes.io/name: weir-sync
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weir-sync.labels" -}}
{{ include "weir-sync.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "weir-sync.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* The settings that name a file with a secret, and the Secret of each. */ -}}
{{- define "weir-sync.secrets" -}}
{{- with .Values.secrets -}}
{{- toYaml (dict "token_file" .tokens "admin_token_file" .adminTokens "check_token_file" .checkTokens "gateway_key_secret_file" .keySecret "store_password_file" .storePassword "store_ca_file" .storeAuthorities) -}}
{{- end -}}
{{- end -}}

{{- /* weir-sync's settings, each with what the chart decides about it; `settings` goes before all of it. */ -}}
{{- define "weir-sync.settings" -}}
{{- $own := dict "listen" (printf "0.0.0.0:%v" .Values.service.port) "ops_listen" "0.0.0.0:7879" -}}
{{- $_ := set $own "region" .Values.region -}}
{{- $_ := set $own "store" .Values.store -}}
{{- $_ := set $own "log_format" "json" -}}
{{- /* Nodes learn late that a pod goes. */ -}}
{{- $_ := set $own "drain_delay_ms" 5000 -}}
{{- if .Values.gateway.grpcPort -}}
{{- $_ := set $own "grpc_listen" (printf "0.0.0.0:%v" .Values.gateway.grpcPort) -}}
{{- end -}}
{{- range $setting, $secret := include "weir-sync.secrets" . | fromYaml -}}
{{- if $secret.name -}}
{{- $_ := set $own $setting (printf "/run/secrets/weir/%s/%s" $setting $secret.key) -}}
{{- end -}}
{{- end -}}
{{- if .Values.tls.secretName -}}
{{- $_ := set $own "tls_cert_file" "/run/secrets/weir/tls/tls.crt" -}}
{{- $_ := set $own "tls_key_file" "/run/secrets/weir/tls/tls.key" -}}
{{- if .Values.tls.clientAuthoritiesKey -}}
{{- $_ := set $own "tls_client_ca_file" (printf "/run/secrets/weir/tls/%s" .Values.tls.clientAuthoritiesKey) -}}
{{- end -}}
{{- end -}}
{{- if .Values.rules -}}
{{- $_ := set $own "rules_file" "/etc/weir/rules.yaml" -}}
{{- end -}}
{{- toYaml (merge (deepCopy .Values.settings) $own) -}}
{{- end -}}
