"""Parses a Perfetto trace with Google's published schema and prints what it holds, as one line.

Usage: perfetto_schema.py FILE      (needs `pip install perfetto`)
"""
import sys
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

trace = schema.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
switches = wakings = threads = disorder = chained = 0
last_next = {}
for packet in trace.packet:
    threads += len(packet.process_tree.threads)
    bundle = packet.ftrace_events
    latest = 0
    for event in bundle.event:
        disorder += event.timestamp < latest
        latest = event.timestamp
        if event.HasField("sched_switch"):
            switches += 1
            switch = event.sched_switch
            chained += last_next.get(bundle.cpu) == switch.prev_pid
            last_next[bundle.cpu] = switch.next_pid
        wakings += event.HasField("sched_waking")
print(f"switches={switches} wakings={wakings} threads={threads} disorder={disorder} chained={chained}")
