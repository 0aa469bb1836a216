{{- define "esclusa.name" -}}
{{- printf "%s-esclusa" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "esclusa.labels" -}}
app.kubernetes.io/name: esclusa
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end -}}

{{- define "esclusa.selector" -}}
app.kubernetes.io/name: esclusa
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "esclusa.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "esclusa.name" .) -}}
{{- end -}}

{{- define "esclusa.image" -}}
{{- printf "%s:%s" (required "image.repository is required" .Values.image.repository) (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* What every pod of Esclusa has. */}}
{{- define "esclusa.pod" -}}
automountServiceAccountToken: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: tmp
    emptyDir: {}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What every container of Esclusa has. */}}
{{- define "esclusa.container" -}}
image: {{ include "esclusa.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - name: tmp
    mountPath: /tmp
envFrom:
  - secretRef:
      name: {{ required "secretName is required" .Values.secretName | quote }}
env:
  - name: ESCLUSA_PIPELINES
    value: {{ required "pipelines is required" .Values.pipelines | quote }}
  - name: ESCLUSA_HOST
    value: "0.0.0.0"
  - name: ESCLUSA_AUTO_MIGRATE
    value: "false"
  {{- range $name, $value := .Values.settings }}
  - name: {{ $name }}
    value: {{ $value | quote }}
  {{- end }}
{{- end -}}
