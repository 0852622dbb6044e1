#!/bin/sh
# Tells Alertmanager of an incident: run = ["/usr/share/doc/schedlab/examples/alertmanager.sh", "http://127.0.0.1:9093"]
# schedlab gives SCHEDLAB_FILE, SCHEDLAB_RULE and SCHEDLAB_INCIDENT (JSON). Needs curl and jq.
set -eu
jq --null-input --arg rule "$SCHEDLAB_RULE" --arg file "$SCHEDLAB_FILE" --arg host "$(uname -n)" \
    --argjson incident "$SCHEDLAB_INCIDENT" '[{
        labels: {alertname: "SchedlabIncident", rule: $rule, instance: $host, task: $incident.task, severity: "warning"},
        annotations: {summary: $incident.condition, recording: $file}
    }]' |
    curl --silent --show-error --fail --max-time 20 --header 'Content-Type: application/json' --data-binary @- "$1/api/v2/alerts"
