{{- define "image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "settings" -}}
{{- $config := dict -}}
{{- range (index (.Files.Get "base/kustomization.yaml" | fromYaml).configMapGenerator 0).literals -}}
{{- $pair := splitn "=" 2 . -}}
{{- $_ := set $config $pair._0 $pair._1 -}}
{{- end -}}
{{- if not .Values.tls.enabled -}}{{- $_ := set $config "INSECURE" "1" -}}{{- end -}}
{{- if .Values.gpu -}}{{- $_ := set $config "CUDA_DEVICE_ORDER" "PCI_BUS_ID" -}}{{- end -}}
{{- with .Values.s3 -}}
{{- if .repository -}}
{{- $_ := set $config "REPOSITORY" .repository -}}
{{- if .role -}}
{{- $_ := set $config "AWS_ROLE_ARN" .role -}}
{{- $_ := set $config "AWS_WEB_IDENTITY_TOKEN_FILE" "/run/secrets/aws/token" -}}
{{- if .region -}}{{- $_ := set $config "AWS_REGION" .region -}}{{- end -}}
{{- else -}}
{{- $_ := set $config "S3_CREDENTIALS" "/run/secrets/s3/credentials" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.settings -}}{{- $_ := set $config $name $value -}}{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- /* In the pods themselves: one that restarts reads what it was started with, and a rollout can be undone. kustomize
has a ConfigMap with another name for that, of which Helm would remove the old one. A $ would begin a variable. */ -}}
{{- define "environment" -}}
{{- range $name, $value := include "settings" . | fromYaml }}
- {name: {{ $name }}, value: {{ $value | replace "$" "$$" | quote }}}
{{- end -}}
{{- end -}}
