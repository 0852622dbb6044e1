#!/usr/bin/env python3
"""Sends an incident to an OpenTelemetry collector as a span (OTLP/HTTP with JSON, opentelemetry-proto 1.x; no package but Python's own).

usage: otlp.py COLLECTOR [--spans FILE] [--patience SECONDS] [--print]

In /etc/schedlab/flight.toml:  run = ["/usr/share/doc/schedlab/examples/otlp.py", "http://127.0.0.1:4318", "--spans", "/var/log/otel/spans.json"]

The span has the thread's id and name (the attributes of OpenTelemetry's conventions) and the wall-clock time of the wait. Who ran meanwhile are its events.

--spans FILE: what the application itself sends, as the collector's file exporter writes it (a line of JSON for each request). The wait becomes a child of the
innermost span that its thread had open when the wait began; a thread that waited before it began one (a server's, woken by a request) has it in the trace of
its next span, with a link to that. `schedlab.joined` says which: within, before, or no. A thread is known by `process.pid` of the resource and `thread.id` of the
span, or `thread.name`, of which the kernel keeps 15 bytes: thread.id is the runtime's own number in some languages (Java). Applications send spans when they have ended, in
batches: the file is read again for --patience seconds (15) until there is one.

schedlab gives SCHEDLAB_FILE, SCHEDLAB_RULE and
SCHEDLAB_INCIDENT. --print prints the request instead of sending it. OTEL_EXPORTER_OTLP_HEADERS (name=value,...) is sent, for a token.
"""
import argparse, json, os, secrets, socket, subprocess, sys, time, urllib.parse, urllib.request

NAMES = {"waited": "wait for a CPU", "ran": "run without a break", "blocked": "block"}
INTERNAL = 1  # SpanKind
KERNEL_NAME = 15  # bytes of a thread's name (TASK_COMM_LEN less its end)
MOST = 256 << 20  # bytes of the file of spans that are looked at, its last


def attribute(key, value):
    kind = {bool: "boolValue", int: "intValue", float: "doubleValue"}.get(type(value), "stringValue")
    return {"key": key, "value": {kind: str(value) if kind == "intValue" else value}}


def shown(program, file):
    ran = subprocess.run([program, "show", file, "--worst", "100", "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout)


def plain(attributes):
    """Attributes as a dictionary; whole numbers are texts in OTLP's JSON."""
    values = {one["key"]: next(iter(one["value"].values()), None) for one in attributes or [] if one.get("value")}
    return {key: str(value) for key, value in values.items()}


def spans_of(file, process):
    """Spans in a collector's file that this process made. What is no line of it (one that is being written, say) is passed over."""
    with open(file, "rb") as lines:
        lines.seek(max(0, os.fstat(lines.fileno()).st_size - MOST))
        for line in lines:
            try:
                requests = json.loads(line)["resourceSpans"]
            except (ValueError, KeyError, TypeError):
                continue
            for one in requests:
                if plain(one.get("resource", {}).get("attributes")).get("process.pid") == str(process):
                    yield from (span for scope in one.get("scopeSpans", []) for span in scope.get("spans", []))


def of_thread(span, incident):
    """Whether the incident's thread made the span."""
    own = plain(span.get("attributes"))
    name = own.get("thread.name", "").encode()[:KERNEL_NAME].decode(errors="ignore")
    return own.get("thread.id") == str(incident["tid"]) or name == incident["task"] != ""


def beside(file, process, incident, begin):
    """The innermost span that the incident's thread had open at `begin`, and the first that it began later."""
    own = [span for span in spans_of(file, process) if of_thread(span, incident)]
    start = lambda span: int(span["startTimeUnixNano"])
    is_open = lambda span: start(span) <= begin <= int(span["endTimeUnixNano"])
    later = (span for span in own if start(span) > begin)
    return max(filter(is_open, own), key=start, default=None), min(later, key=start, default=None)


def join(options, span, process, incident):
    """Makes the span a part of the application's trace, when that has come."""
    last = time.monotonic() + options.patience
    while True:
        around, after = beside(options.spans, process, incident, int(span["startTimeUnixNano"]))
        if around or after or time.monotonic() >= last:
            break
        time.sleep(min(1, options.patience))
    how = "within" if around else "before" if after else "no"
    span["attributes"].append(attribute("schedlab.joined", how))
    if around:
        span["traceId"], span["parentSpanId"] = around["traceId"], around["spanId"]
    elif after:
        span["traceId"] = after["traceId"]
        span["links"] = [{"traceId": after["traceId"], "spanId": after["spanId"]}]


def process_of(tid, own):
    """The process of a thread: as it was recorded, or as it is now."""
    if own:
        return own[0]["task"]["pid"]
    try:
        with open(f"/proc/{tid}/status") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("Tgid:")), None)
    except OSError:
        return None


def to_unix(recording):
    """What to add to a time of the recording: the machine that recorded it asks for this, so its clocks are here."""
    clock = getattr(time, recording["clock"], time.CLOCK_MONOTONIC)
    return time.time_ns() - time.clock_gettime_ns(clock) + recording["clock_start_ns"]


def request(incident, found, rule, file, options):
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
    if options.spans:
        join(options, span, process_of(incident["tid"], own), incident)
    resource = [attribute("service.name", "schedlab-flight"), attribute("host.name", socket.gethostname()),
                attribute("os.version", found["recording"]["kernel"])]
    scope = {"name": "schedlab", "version": found["version"]}
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"scope": scope, "spans": [span]}]}]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collector", nargs="?", help="its address, such as http://127.0.0.1:4318")
    parser.add_argument("--spans", metavar="FILE", help="find the application's span in this file")
    parser.add_argument("--patience", metavar="SECONDS", type=float, default=15)
    parser.add_argument("--print", action="store_true", help="print the request")
    options = parser.parse_args()
    if not options.collector and not options.print:
        parser.error("where is the collector?")
    incident, file = json.loads(os.environ["SCHEDLAB_INCIDENT"]), os.environ["SCHEDLAB_FILE"]
    if incident is None:
        return
    found = shown(os.environ.get("SCHEDLAB", "schedlab"), file)
    body = json.dumps(request(incident, found, os.environ.get("SCHEDLAB_RULE", ""), file, options), indent=1)
    if options.print:
        print(body)
        return
    headers = {"Content-Type": "application/json"}
    for pair in filter(None, os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",")):
        name, _, value = pair.partition("=")
        headers[name.strip()] = urllib.parse.unquote(value.strip())
    url = options.collector.rstrip("/") + "/v1/traces"
    with urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers), timeout=20) as answer:
        refused = json.load(answer).get("partialSuccess", {}).get("rejectedSpans", 0)
    if int(refused):
        sys.exit(f"{url} rejected the span")


if __name__ == "__main__":
    main()
