{{/* The chart's name as objects carry it. */}}
{{- define "mooring.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Name of the objects of this release. */}}
{{- define "mooring.fullname" -}}
{{- $name := include "mooring.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Name of the cluster's objects of this release: a release of the same name may live in another namespace. */}}
{{- define "mooring.clusterName" -}}
{{- printf "%s.%s" (include "mooring.fullname" .) .Release.Namespace }}
{{- end }}

{{/* What selects the operator's pods. */}}
{{- define "mooring.selector" -}}
app.kubernetes.io/name: {{ include "mooring.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "mooring.labels" -}}
{{ include "mooring.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "mooring.serviceAccount" -}}
{{- default (ternary (include "mooring.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{/* An image by digest, or by tag with the appVersion as default: (list image appVersion). */}}
{{- define "mooring.image" -}}
{{- $image := index . 0 }}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default (index . 1) $image.tag }}
{{- end }}
{{- end }}
