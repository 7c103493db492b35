{{- define "headgate.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $made := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $made .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- /* (root, component): the labels that select a workload. */ -}}
{{- define "headgate.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "headgate.labels" -}}
{{ include "headgate.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: headgate
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "headgate.imageOf" -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag }}{{ end -}}
{{- end }}

{{- define "headgate.image" -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{- include "headgate.imageOf" (dict "repository" .Values.image.repository "tag" $tag "digest" .Values.image.digest) -}}
{{- end }}

{{- define "headgate.kafkaImage" -}}
{{- $own := .Values.kafka.image -}}
{{- $tag := coalesce $own.tag .Values.image.tag .Chart.AppVersion -}}
{{- include "headgate.imageOf" (dict "repository" $own.repository "tag" $tag "digest" $own.digest) -}}
{{- end }}

{{- define "headgate.kafkaService" -}}
{{ include "headgate.fullname" . }}-kafka
{{- end }}

{{- define "headgate.bootstrap" -}}
{{- if .Values.kafka.enabled -}}
{{ include "headgate.kafkaService" . }}.{{ .Release.Namespace }}.svc:9092
{{- else -}}
{{ required "kafka.bootstrap: name the brokers, as host:port[,host:port], or set kafka.enabled" .Values.kafka.bootstrap }}
{{- end -}}
{{- end }}

{{- /* The defaults of every app's `config.kafka`, as JSON. */ -}}
{{- define "headgate.kafka" -}}
{{- $kafka := dict "bootstrap" (include "headgate.bootstrap" .) -}}
{{- include "headgate.merge" (dict "to" $kafka "from" .Values.kafka.settings) -}}
{{- toJson $kafka -}}
{{- end }}

{{- /* The name of the claim of checkpoints; empty if they are in an object store. */ -}}
{{- define "headgate.claim" -}}
{{- if hasPrefix "/" .Values.checkpoints.root -}}
{{ default (printf "%s-checkpoints" (include "headgate.fullname" .)) .Values.checkpoints.claim }}
{{- end -}}
{{- end }}

{{- /* Merges `from` into `to`, in place. Unlike mergeOverwrite it also takes over the values 0, false and "". */ -}}
{{- define "headgate.merge" -}}
{{- range $name, $entry := .from -}}
  {{- if and (kindIs "map" $entry) (kindIs "map" (get $.to $name)) -}}
    {{- include "headgate.merge" (dict "to" (get $.to $name) "from" $entry) -}}
  {{- else -}}
    {{- $_ := set $.to $name $entry -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- /* (root, name, app): the spec of the StreamApp, as YAML. */ -}}
{{- define "headgate.appSpec" -}}
{{- $values := .root.Values -}}
{{- $kafka := fromJson (include "headgate.kafka" .root) -}}
{{- $checkpoint := dict "root" $values.checkpoints.root -}}
{{- with include "headgate.claim" .root }}{{ $_ := set $checkpoint "claim" . }}{{ end -}}
{{- $spec := dict "service" .name "image" (include "headgate.image" .root) "imagePullPolicy" $values.image.pullPolicy -}}
{{- $_ := set $spec "config" (dict "kafka" $kafka) -}}
{{- $_ := set $spec "checkpoint" $checkpoint -}}
{{- with $values.image.pullSecrets }}{{ $_ := set $spec "imagePullSecrets" . }}{{ end -}}
{{- include "headgate.merge" (dict "to" $spec "from" (deepCopy $values.appDefaults)) -}}
{{- include "headgate.merge" (dict "to" $spec "from" (omit (deepCopy .app) "enabled")) -}}
{{- toYaml $spec -}}
{{- end }}

{{- define "headgate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "headgate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* (root, name, args): a container of the image; the caller appends further entries. */ -}}
{{- define "headgate.container" -}}
- name: {{ .name }}
  image: {{ include "headgate.image" .root | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args: {{ toJson .args }}
  securityContext: {{- include "headgate.containerSecurity" .root | nindent 4 }}
{{- end }}

{{- /* Environment, mounts and volumes with which the command `headgate` logs in to servers as an app's drivers do:
       (spec, configMap). spec: the app's spec, or a part of it; configMap: the ConfigMap with the app's `kafka:`. */ -}}
{{- define "headgate.loginEnv" -}}
- {name: HEADGATE_KAFKA, value: /etc/headgate/login/kafka.json}
{{- with (default dict .spec.driver).env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "headgate.loginMounts" -}}
- {name: login, mountPath: /etc/headgate/login, readOnly: true}
{{- if .spec.secret }}
- {name: secret, mountPath: /etc/headgate/secret, readOnly: true}
{{- end }}
{{- with (default dict .spec.driver).volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "headgate.loginVolumes" -}}
- {name: login, configMap: {name: {{ .configMap }}, items: [{key: kafka.json, path: kafka.json}]}}
{{- with .spec.secret }}
- {name: secret, secret: {secretName: {{ . }}, defaultMode: 0440}}
{{- end }}
{{- with (default dict .spec.driver).volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "headgate.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}
