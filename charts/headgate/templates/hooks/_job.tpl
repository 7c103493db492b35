{{- /* A Job of the operator's image with a service account of its own, for the time of a hook:
       (root, name, events, component, args, rules, cluster, seconds). */ -}}
{{- define "headgate.hook" -}}
{{- $name := printf "%s-%s" (include "headgate.fullname" .root) .name -}}
{{- $part := dict "root" .root "component" .name -}}
{{- $kind := ternary "ClusterRole" "Role" .cluster -}}
{{- $roleName := ternary (printf "%s-%s" $name (.root.Release.Namespace | trunc 14 | trimSuffix "-")) $name .cluster -}}
{{- range $order, $made := list "ServiceAccount" $kind (printf "%sBinding" $kind) }}
---
apiVersion: {{ ternary "v1" "rbac.authorization.k8s.io/v1" (eq $made "ServiceAccount") }}
kind: {{ $made }}
metadata:
  name: {{ ternary $name $roleName (eq $made "ServiceAccount") }}
  labels: {{- include "headgate.labels" $part | nindent 4 }}
  annotations:
    helm.sh/hook: {{ $.events }}
    helm.sh/hook-weight: {{ sub $order 10 | quote }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- if eq $made $kind }}
rules: {{- toYaml $.rules | nindent 2 }}
{{- else if ne $made "ServiceAccount" }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ $kind }}, name: {{ $roleName }}}
subjects:
  - {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $.root.Release.Namespace }}}
{{- end }}
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  labels: {{- include "headgate.labels" $part | nindent 4 }}
  annotations:
    helm.sh/hook: {{ .events }}
    helm.sh/hook-weight: "0"
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  backoffLimit: 3
  activeDeadlineSeconds: {{ .seconds }}
  template:
    metadata:
      labels: {{- include "headgate.labels" $part | nindent 8 }}
    spec:
      serviceAccountName: {{ $name }}
      enableServiceLinks: false
      restartPolicy: Never
      securityContext: {{- include "headgate.podSecurity" .root | nindent 8 }}
      {{- include "headgate.pullSecrets" .root | nindent 6 }}
      containers:
        {{- include "headgate.container" (dict "root" .root "name" .name "args" .args) | nindent 8 }}
          resources:
            requests: {cpu: 50m, memory: 96Mi}
            limits: {memory: 256Mi}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
      volumes:
        - {name: tmp, emptyDir: {}}
{{- end }}
