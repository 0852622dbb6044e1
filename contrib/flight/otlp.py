#!/usr/bin/env python3
"""Sends an incident to an OpenTelemetry collector as a span (OTLP/HTTP with JSON, opentelemetry-proto 1.x; no package but Python's own).

In /etc/schedlab/flight.toml:  run = ["/usr/share/doc/schedlab/examples/otlp.py", "http://127.0.0.1:4318"]

The span has the thread's id and name (the attributes of OpenTelemetry's conventions) and the wall-clock time of the wait: a backend finds it beside the
spans that the application made in that thread at that time. Who ran meanwhile are its events. schedlab gives SCHEDLAB_FILE, SCHEDLAB_RULE and
SCHEDLAB_INCIDENT. --print prints the request instead of sending it. OTEL_EXPORTER_OTLP_HEADERS (name=value,...) is sent, for a token.
"""
import json, os, secrets, socket, subprocess, sys, time, urllib.parse, urllib.request

NAMES = {"waited": "wait for a CPU", "ran": "run without a break", "blocked": "block"}
INTERNAL = 1  # SpanKind


def attribute(key, value):
    kind = {bool: "boolValue", int: "intValue", float: "doubleValue"}.get(type(value), "stringValue")
    return {"key": key, "value": {kind: str(value) if kind == "intValue" else value}}


def shown(program, file):
    ran = subprocess.run([program, "show", file, "--worst", "100", "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout)


def to_unix(recording):
    """What to add to a time of the recording: the machine that recorded it asks for this, so its clocks are here."""
    clock = getattr(time, recording["clock"], time.CLOCK_MONOTONIC)
    return time.time_ns() - time.clock_gettime_ns(clock) + recording["clock_start_ns"]


def request(incident, found, rule, file):
    offset = to_unix(found["recording"])
    begin, length = incident["from_ns"], incident["length_ns"]
    end = found["recording"]["duration_ns"] if length is None else begin + length
    tables = next((one["tables"] for one in found["analyses"] if one["name"] == "worst"), {})
    # The incident in the list of waits: it began at the same moment, in the same thread.
    own = [row for row in tables.get("worst", []) if row["from_ns"] == begin and row["task"]["tid"] == incident["tid"]]
    about = [attribute("thread.id", incident["tid"]), attribute("thread.name", incident["task"]),
             attribute("schedlab.rule", rule), attribute("schedlab.condition", incident["condition"]), attribute("schedlab.recording", file)]
    events = []
    for row in own:
        about.append(attribute("schedlab.why", row["why"]))
        for other in (other for other in tables.get("meanwhile", []) if other["rank"] == row["rank"]):
            who = other["who"]
            who, ids = (who["name"], [attribute("schedlab.tid", who["tid"])]) if isinstance(who, dict) else (who, [])
            about_other = [attribute("schedlab.who", who), attribute("schedlab.time_ns", other["time_ns"]), *ids]
            events.append({"timeUnixNano": str(offset + begin), "name": f"{who} ran", "attributes": about_other})
    span = {"traceId": secrets.token_hex(16), "spanId": secrets.token_hex(8), "name": NAMES.get(incident["did"], incident["did"]), "kind": INTERNAL,
            "startTimeUnixNano": str(offset + begin), "endTimeUnixNano": str(offset + end), "attributes": about, "events": events}
    resource = [attribute("service.name", "schedlab-flight"), attribute("host.name", socket.gethostname()),
                attribute("os.version", found["recording"]["kernel"])]
    scope = {"name": "schedlab", "version": found["version"]}
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"scope": scope, "spans": [span]}]}]}


def main():
    arguments = [word for word in sys.argv[1:] if word != "--print"]
    if len(arguments) != 1 and "--print" not in sys.argv:
        sys.exit(__doc__)
    incident, file = json.loads(os.environ["SCHEDLAB_INCIDENT"]), os.environ["SCHEDLAB_FILE"]
    if incident is None:
        return
    found = shown(os.environ.get("SCHEDLAB", "schedlab"), file)
    body = json.dumps(request(incident, found, os.environ.get("SCHEDLAB_RULE", ""), file), indent=1)
    if "--print" in sys.argv:
        print(body)
        return
    headers = {"Content-Type": "application/json"}
    for pair in filter(None, os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",")):
        name, _, value = pair.partition("=")
        headers[name.strip()] = urllib.parse.unquote(value.strip())
    url = arguments[0].rstrip("/") + "/v1/traces"
    with urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers), timeout=20) as answer:
        refused = json.load(answer).get("partialSuccess", {}).get("rejectedSpans", 0)
    if int(refused):
        sys.exit(f"{url} rejected the span")


if __name__ == "__main__":
    main()
