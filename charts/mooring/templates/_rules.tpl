{{/*
The operator's rights, each explained in README.md. `mooring::rbac::rules` holds the same list; a test compares both.
*/}}

{{/* Where there are servers: in the whole cluster, or in each namespace. */}}
{{- define "mooring.rules.servers" -}}
- apiGroups: [mooring.dev]
  resources: [mcpservers]
  verbs: [list, watch]
- apiGroups: [mooring.dev]
  resources: [mcpservers/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [configmaps, secrets, serviceaccounts, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [ingresses, networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* What belongs to no namespace. */}}
{{- define "mooring.rules.cluster" -}}
- apiGroups: [networking.k8s.io]
  resources: [ingressclasses]
  verbs: [list, watch]
{{- end }}

{{/* In the operator's own namespace. */}}
{{- define "mooring.rules.lease" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "mooring.fullname" . }}]
  verbs: [get, update]
{{- end }}

{{- define "mooring.subjects" -}}
- kind: ServiceAccount
  name: {{ include "mooring.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
