{{- define "kaas.labels" -}}
app.kubernetes.io/name: kaas
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "kaas.operatorSelector" -}}
app.kubernetes.io/name: kaas
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "kaas.operator" -}}
{{ .Release.Name }}-operator
{{- end }}

{{- define "kaas.heartbeat" -}}
{{ .Release.Name }}-heartbeat
{{- end }}

{{- define "kaas.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
