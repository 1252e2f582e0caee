{{/*
The chart's name, and the name of the release's objects.
*/}}
{{- define "gpufleet.name" -}}
{{- .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "gpufleet.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gpufleet.labels" -}}
app.kubernetes.io/name: {{ include "gpufleet.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
A pod that adds two vectors on GPUs, with as few rights as such a pod needs.
Takes (dict "root" $ "limits" dict "nodeSelector" dict "env" list "schedulerName" "").
*/}}
{{- define "gpufleet.vectorAddPod" -}}
restartPolicy: Never
automountServiceAccountToken: false
enableServiceLinks: false
{{- with (kindIs "string" .runtimeClassName | ternary .runtimeClassName .root.Values.runtimeClass.name) }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .schedulerName }}
schedulerName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.verification.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with .claimTemplate }}
resourceClaims:
  - name: device
    resourceClaimTemplateName: {{ . }}
{{- end }}
containers:
  - name: vectoradd
    image: {{ .root.Values.verification.image }}
    imagePullPolicy: {{ .root.Values.verification.imagePullPolicy }}
    {{- with .env }}
    env:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    resources:
      requests:
        {{- toYaml .root.Values.verification.resources.requests | nindent 8 }}
      limits:
        {{- toYaml .root.Values.verification.resources.limits | nindent 8 }}
        {{- range $resource, $count := .limits }}
        {{ $resource }}: {{ $count | quote }}
        {{- end }}
      {{- if .claimTemplate }}
      claims:
        - name: device
      {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
{{- end -}}
