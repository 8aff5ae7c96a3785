{{/* What several templates need. Each takes a dict: root is the chart's $, component the program's name. */}}

{{/* Labels that a Deployment, a policy and a budget choose pods by; class: of workers alone. They never change. */}}
{{- define "signalbox.selector" -}}
app.kubernetes.io/name: signalbox
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .class }}
signalbox-class: {{ . }}
{{- end }}
{{- end }}

{{- define "signalbox.labels" -}}
{{ include "signalbox.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* name: gateway, worker, worker-cuda or console. */}}
{{- define "signalbox.image" -}}
{{- $image := .root.Values.image -}}
{{- $where := printf "%s-%s" $image.prefix .name -}}
{{- with $image.registry }}{{ $where = printf "%s/%s" (trimSuffix "/" .) $where }}{{ end -}}
{{- with get $image.digests .name -}}
{{ $where }}@{{ . }}
{{- else -}}
{{ $where }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* What every pod has. program: its values. */}}
{{- define "signalbox.pod" -}}
serviceAccountName: {{ .root.Release.Name }}-{{ .component }}
automountServiceAccountToken: false  # no program talks to the API server
enableServiceLinks: false  # SIGNALBOX_GATEWAY_PORT of a Service would be taken for a setting, and refused
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .program.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .program.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .program.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if ne (default "none" .program.spread) "none" }}
topologySpreadConstraints:
  {{- $onHosts := eq .program.spread "strict" | ternary "DoNotSchedule" "ScheduleAnyway" }}
  {{- range $key, $unmet := dict "kubernetes.io/hostname" $onHosts "topology.kubernetes.io/zone" "ScheduleAnyway" }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: {{ $unmet }}
    labelSelector: {matchLabels: {{ include "signalbox.selector" $ | fromYaml | toJson }}}
    nodeTaintsPolicy: Honor  # a node that takes no such pod is no empty one
    matchLabelKeys: [{{ empty $.class | ternary "pod-template-hash" "controller-revision-hash" }}]
  {{- end }}
{{- end }}
{{- end }}

{{- define "signalbox.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Probes of a program of ours, on the port of its metrics. startupS: longest start; ready: another readiness probe. */}}
{{- define "signalbox.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: {{ div .startupS 2 }}
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: {{ .ready | default "/readyz" }}, port: {{ .port | default "metrics" }}}
  periodSeconds: 5
  timeoutSeconds: 3
  # Half a minute: an election in NATS ends sooner, and takes no pod out.
  failureThreshold: 6
{{- end }}

{{/* A list of variables. set: the chart's own, by name; extra: the user's; where: the value that those stand in; names:
what they begin with. */}}
{{- define "signalbox.env" -}}
{{- range $name, $_ := .extra -}}
{{- $known := false -}}
{{- range $.names }}{{ if hasPrefix . $name }}{{ $known = true }}{{ end }}{{ end -}}
{{- if not $known -}}
{{- fail (printf "%s sets %s: names there begin with %s (docs/settings.md)." $.where $name (join ", " $.names)) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .root.Values.env -}}
{{- if not (hasPrefix "SIGNALBOX_" $name) -}}
{{- fail (printf "env sets %s: it has variables of every program, which begin with SIGNALBOX_ (docs/settings.md)." $name) -}}
{{- end -}}
{{- end -}}
{{- $extra := merge (dict) .extra .root.Values.env -}}
{{- range $name, $_ := $extra -}}
{{- range list $name (printf "%s_FILE" $name) (trimSuffix "_FILE" $name) -}}
{{- if hasKey $.set . -}}
{{- fail (printf "%s sets %s, and the chart sets %s itself: take it out, and change the value or the Secret that it comes from (values.yaml)." (hasKey $.extra $name | ternary $.where "env") $name .) -}}
{{- end -}}
{{- end -}}
{{- if regexMatch "(PASSWORD|SECRET|SECRET_KEY|SECRET_ACCESS_KEY|PEPPER|SEED|DATABASE_URL|TRACES_HEADERS|OTLP_HEADERS)$" $name -}}
{{- fail (printf "%s sets %s, which is a secret, and who may read the release reads values: put it into a Secret (secretEnv of gateway, console and outbound; a collector's headers are SIGNALBOX_OUTBOUND_TRACES_HEADERS there)." (hasKey $.extra $name | ternary $.where "env") $name) -}}
{{- end -}}
{{- end -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- range $name, $text := merge (dict) .set $extra }}
- name: {{ $name }}
  value: {{ toString $text | quote }}
{{- end }}
{{- end }}

{{/* Variables of every program: where NATS is, how long things are kept, metrics. */}}
{{- define "signalbox.wire" -}}
{{- $v := .root.Values -}}
SIGNALBOX_NATS_URL: {{ join "," $v.nats.urls | quote }}
{{- if $v.nats.caSecret }}
SIGNALBOX_NATS_CA_FILE: /run/secrets/tls_ca
{{- end }}
SIGNALBOX_LOG_LEVEL: {{ $v.logLevel }}
SIGNALBOX_RECORDS_KEPT_S: {{ int64 $v.kept.recordsS | quote }}
SIGNALBOX_RESULTS_KEPT_S: {{ int64 $v.kept.resultsS | quote }}
SIGNALBOX_SYNC_RESULTS_KEPT_S: {{ int64 $v.kept.syncResultsS | quote }}
SIGNALBOX_DEAD_LETTERS_KEPT_S: {{ int64 $v.kept.deadLettersS | quote }}
SIGNALBOX_HISTORY_KEPT_S: {{ int64 $v.kept.historyS | quote }}
SIGNALBOX_ENDS_KEPT_S: {{ int64 $v.kept.endsS | quote }}
SIGNALBOX_FILES_KEPT_S: {{ int64 $v.kept.filesS | quote }}
SIGNALBOX_WEBHOOK_NETWORKS: {{ join "," $v.webhooks.networks | quote }}
SIGNALBOX_WEBHOOK_PLAIN: {{ $v.webhooks.plain | ternary "on" "off" | quote }}
SIGNALBOX_METRICS_PORT: "9100"
SIGNALBOX_METRICS_HOST: $(POD_IP)
{{- end }}

{{/* Variables of the console's programs. */}}
{{- define "signalbox.consoleEnv" -}}
{{- $v := .root.Values -}}
{{ include "signalbox.wire" . }}
SIGNALBOX_NATS_USER: console
SIGNALBOX_NATS_PASSWORD_FILE: /run/secrets/nats_console
SIGNALBOX_CONSOLE_DATABASE_URL_FILE: /run/secrets/database_url
SIGNALBOX_CONSOLE_DATA_DIR: /var/lib/signalbox/console
SIGNALBOX_CONSOLE_REPOSITORY_DIR: /var/lib/signalbox/models
SIGNALBOX_CONSOLE_UPLOADS_URL: {{ $v.console.uploadsUrl | quote }}
SIGNALBOX_CONSOLE_REPOSITORY_URLS: {{ join "," $v.repositories.urls | quote }}
{{- if $v.repositories.credentialsSecret }}
SIGNALBOX_CONSOLE_REPOSITORY_CREDENTIALS: /var/lib/signalbox/repositories
{{- end }}
SIGNALBOX_CONSOLE_CLASSES: {{ include "signalbox.consoleClasses" . | quote }}
SIGNALBOX_CONSOLE_JOBS_KEPT_DAYS: {{ int64 $v.console.jobsKeptDays | quote }}
SIGNALBOX_CONSOLE_JOBS_KEPT_ROWS: {{ int64 $v.console.jobsKeptRows | quote }}
{{- end }}

{{/* Bounds of classes. With KEDA each of its classes has one: the console then always says how many it asks for. */}}
{{- define "signalbox.consoleClasses" -}}
{{- $found := .root.Values.console.classes -}}
{{- if and .root.Values.keda.enabled (not $found) -}}
{{- range $name, $bounds := .root.Values.keda.classes -}}
{{- $class := include "signalbox.class" (dict "root" $.root "class" $name) | fromYaml -}}
{{- $found = append $found (printf "%s=%d" $name (mul (int $bounds.max) (int $class.devices))) -}}
{{- end -}}
{{- end -}}
{{ join "," $found }}
{{- end }}

{{/* The values of a class of workers, with the defaults; devices: of a pod; image: its name. */}}
{{- define "signalbox.class" -}}
{{- $classes := .root.Values.workers.classes -}}
{{- if not (hasKey $classes .class) -}}
{{- fail (printf "keda.classes.%s is no class of workers.classes (%s): spell it alike, or take it out." .class (keys $classes | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $class := deepCopy .root.Values.workers.defaults -}}
{{- range $key, $value := get $classes .class -}}
{{- $_ := set $class $key $value -}}
{{- end -}}
{{- $_ := set $class "devices" (max 1 (int $class.gpus)) -}}
{{- $_ := set $class "image" ($class.image | default (eq (int $class.gpus) 0 | ternary "worker" "worker-cuda")) -}}
{{ toYaml $class }}
{{- end }}

{{/* A volume "secrets" with the named keys of one Secret, and the authorities of NATS. secret, keys; ca: another. */}}
{{- define "signalbox.secrets" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ .secret }}
          items:
            {{- range .keys }}
            - {key: {{ . }}, path: {{ . }}}
            {{- end }}
      {{- with .root.Values.nats.caSecret }}
      - secret: {name: {{ . }}, items: [{key: tls_ca, path: tls_ca}]}
      {{- end }}
      {{- range $key, $name := .more }}
      {{- if $name }}
      - secret: {name: {{ $name }}, items: [{key: {{ $key }}, path: {{ $key }}}]}
      {{- end }}
      {{- end }}
{{- end }}

{{/* Bytes of a size, as 50Gi. */}}
{{- define "signalbox.bytes" -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- $unit := regexFind "[A-Za-z]+$" . -}}
{{ mul (trimSuffix $unit . | int64) (get $units $unit | int64) }}
{{- end }}

{{/* A volume of the node's disk. */}}
{{- define "signalbox.scratch" -}}
- name: {{ .name }}
  emptyDir: {sizeLimit: {{ .size }}}
{{- end }}

{{/* The volume "models": the claim, or, where uploads are in a store, room to unpack one. */}}
{{- define "signalbox.models" -}}
{{- with .Values.models.existingClaim -}}
- name: models
  persistentVolumeClaim: {claimName: {{ . }}}
{{- else -}}
{{ include "signalbox.scratch" (dict "name" "models" "size" .Values.console.scratch) }}
{{- end }}
{{- end }}

{{/* Whether models come from an object store: "yes" or nothing. */}}
{{- define "signalbox.hasStores" -}}
{{- range prepend .Values.repositories.urls .Values.console.uploadsUrl -}}
{{- if and . (not (hasPrefix "file:" .)) }}yes{{ end -}}
{{- end -}}
{{- end }}

{{/* Seconds from the end of a gateway pod's place in its Service to the end of its last call. */}}
{{- define "signalbox.tykStopS" -}}
{{- $tyk := .Files.Get "files/tyk/tyk.conf" | fromJson -}}
{{ add (int .Values.gateway.preStopS) (int $tyk.graceful_shutdown_timeout_duration) 10 }}
{{- end }}

{{/* Annotations of what is there before an install and an upgrade alone, in the order of the weights. */}}
{{- define "signalbox.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
