{{/*
What the policies share. A policy is written out in templates/policies/, one file each: its mode is looked up here, and its head, its
resources, its variables and its binding come from here.
*/}}

{{/*
The mode of one policy: its own, else that of all. Takes (dict "root" $ "policy" "limits").
*/}}
{{- define "gpufleet.mode" -}}
{{- $policies := .root.Values.policies -}}
{{- (index $policies .policy).mode | default $policies.mode -}}
{{- end -}}

{{/*
The name of a policy's objects. Takes (dict "root" $ "name" "host-devices").
*/}}
{{- define "gpufleet.policy.name" -}}
{{- printf "%s-%s" (include "gpufleet.fullname" .root) .name -}}
{{- end -}}

{{/*
A policy up to its spec. Takes (dict "root" $ "name" "host-devices").
*/}}
{{- define "gpufleet.policy.head" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ include "gpufleet.policy.name" . }}
  labels:
    {{- include "gpufleet.labels" .root | nindent 4 }}
{{- end -}}

{{/*
Where pods get their specification: when they are made, and when a debug container is added. Everything else of it never changes, but for
images, and what a policy demands of a container overrides its image.
*/}}
{{- define "gpufleet.policy.pods" -}}
resourceRules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [UPDATE]
    resources: [pods/ephemeralcontainers]
{{- end -}}

{{/*
The containers that a request brings: those of a new pod, init containers among them, or the debug containers. dyn, because the two have
different types.
*/}}
{{- define "gpufleet.policy.containers" -}}
- name: debug
  expression: has(request.subResource) && request.subResource == 'ephemeralcontainers'
- name: containers
  expression: >-
    variables.debug
    ? dyn(has(object.spec.ephemeralContainers) ? object.spec.ephemeralContainers : [])
    : dyn(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []))
{{- end -}}

{{/*
The variables of a container's environment by which the NVIDIA runtime gives devices.
*/}}
{{- define "gpufleet.policy.variables" -}}
- name: names
  expression: "['NVIDIA_VISIBLE_DEVICES', 'NVIDIA_IMEX_CHANNELS', 'NVIDIA_MIG_CONFIG_DEVICES', 'NVIDIA_MIG_MONITOR_DEVICES']"
{{- end -}}

{{/*
What every message about an object of a namespace ends with, as the end of a CEL string.
*/}}
{{- define "gpufleet.policy.exempt" -}}
 Exempt: namespaces with the label {{ .Values.policies.exemptLabel }}.
{{- end -}}

{{/*
The runtime classes of GPUs, and their handlers, as a CEL list.
*/}}
{{- define "gpufleet.policy.runtimeClasses" -}}
{{- $names := concat (list .Values.runtimeClass.name) .Values.policies.runtimeClassNames | compact | uniq -}}
{{- include "gpufleet.policy.list" $names -}}
{{- end -}}

{{/*
Texts as a CEL list.
*/}}
{{- define "gpufleet.policy.list" -}}
[{{ range $number, $text := . }}{{ if $number }}, {{ end }}'{{ $text }}'{{ end }}]
{{- end -}}

{{/*
The binding of a policy over objects of namespaces: the actions are the policy's mode.
Takes (dict "root" $ "policy" "hostDevices" "name" "host-devices").
*/}}
{{- define "gpufleet.policy.binding" -}}
{{- $policies := .root.Values.policies -}}
{{- include "gpufleet.policy.bindingHead" . }}
  matchResources:
    namespaceSelector:
      matchExpressions:
        {{- include "gpufleet.policy.unlabelled" . | nindent 8 }}
        {{- with $policies.exemptNamespaces }}
        - key: kubernetes.io/metadata.name
          operator: NotIn
          values: {{ toJson . }}
        {{- end }}
    {{- if $policies.exemptPods }}
    objectSelector:
      matchExpressions:
        {{- include "gpufleet.policy.unlabelled" . | nindent 8 }}
    {{- end }}
{{- end -}}

{{- define "gpufleet.policy.unlabelled" -}}
- key: {{ .root.Values.policies.exemptLabel }}
  operator: NotIn
  values: ["true"]
- key: {{ .root.Values.policies.exemptLabel }}-{{ .name }}
  operator: NotIn
  values: ["true"]
{{- end -}}

{{- define "gpufleet.policy.bindingHead" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ include "gpufleet.policy.name" . }}
  labels:
    {{- include "gpufleet.labels" .root | nindent 4 }}
spec:
  policyName: {{ include "gpufleet.policy.name" . }}
  validationActions: [{{ if eq (include "gpufleet.mode" .) "deny" }}Deny{{ else }}Warn{{ end }}, Audit]
{{- end -}}
