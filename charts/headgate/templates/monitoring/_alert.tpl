{{- define "headgate.alert" }}
        - alert: {{ .name }}
          expr: {{ .expr | quote }}
          for: {{ .for }}
          labels: {severity: {{ .severity }}}
          annotations:
            summary: {{ .summary | quote }}
            description: {{ .description | quote }}
{{- end }}
