{{/* The name of every object. It leaves room for what Kubernetes adds to names of pods. */}}
{{- define "forge.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels by which objects find the nodes. They never change. */}}
{{- define "forge.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "forge.labels" -}}
{{ include "forge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | trimSuffix "." }}
{{- end -}}

{{/* The service account of the pods; empty: the namespace's own. */}}
{{- define "forge.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "forge.name" .) "" .Values.leases.enabled) -}}
{{- end -}}

{{- define "forge.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The host names under which the Service is reached, and further ones. */}}
{{- define "forge.hosts" -}}
{{- $name := include "forge.name" . -}}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{- concat $hosts .Values.allowedHosts | join "," -}}
{{- end -}}
