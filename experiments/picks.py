#!/usr/bin/env python3
"""Which rule differs? Turns what one CPU did in a recording into a line for `cargo xtask oracle --replay`, which feeds a
scheduler the recorded wakeups and switches, compares each of its choices with the recorded one, and goes on with that.

usage: experiments/picks.py FILE.slt CPU OUT.jsonl [--schedlab PATH]
       cargo xtask oracle OUT.jsonl --replay --verbose

What to know when reading its output:
* Groups are flattened: it fits a CPU whose tasks are nearly all of one group, such as those of experiments/pairs.py.
* From a wakeup to the switch it takes 10 to 20 us on a virtual machine (an interrupt from another CPU), and the oracle waits
  for 6. A switch that followed its wakeup within 100 us is moved to 3 us after it. The accounts are the same: the switch
  uses the clock of the wakeup.
* Switches at ticks come some 10 us after the edge: `uncalled` after a tick is that, and no difference.
* The lag that tasks had when the recording began is unknown, taken as 0, and kept for ever (lag is conserved), so
  with three tasks or more a difference may be that and no other rule. With two it is forgotten soon.
"""
import argparse, collections, csv, json, os, subprocess, tempfile

LATENCY_US, QUICK_US = 3.0, 100.0
FEATURES = ("PLACE_LAG PLACE_DEADLINE_INITIAL PLACE_REL_DEADLINE RUN_TO_PARITY PREEMPT_SHORT DELAY_DEQUEUE DELAY_ZERO "
            "WAKEUP_PREEMPTION NO_HRTICK").split()


def exported(args):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([args.schedlab, "export", args.file, "--csv", folder], check=True, stdout=subprocess.DEVNULL)
        read = lambda name: list(csv.DictReader(open(os.path.join(folder, name))))
        return read("events.csv"), {task["task"]: task for task in read("tasks.csv")}


def first_tick(events, cpu, period_us):
    """Where the switches between two runnable tasks crowd."""
    phases = collections.Counter()
    for event in events:
        if event["event"] == "switch" and event["cpu"] == cpu and event["state"].startswith("runnable"):
            phases[int(int(event["at_ns"]) / 1e3 % period_us) // 10 * 10] += 1
    return float(max(phases, key=phases.get, default=0)) + period_us - 4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("cpu")
    parser.add_argument("out")
    parser.add_argument("--schedlab", default=os.path.join(os.path.dirname(__file__), "../target/debug/schedlab"))
    parser.add_argument("--hz", type=int, default=250)
    parser.add_argument("--base-slice-ns", type=int, default=1_400_000)
    args = parser.parse_args()
    events, tasks = exported(args)
    name = lambda task: f"{tasks[task]['comm'].replace(' ', '_')}-{task}" if task else "idle"
    # The CPU of a wakeup is where the wakee runs next.
    goes_to, where = {}, [None] * len(events)
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event["event"] == "switch" and event["next_task"]:
            goes_to[event["next_task"]] = event["cpu"]
        elif event["event"] in ("wake", "new"):
            where[index] = goes_to.get(event["task"])
    switches, wakeups, woken, seen, at = [], [], {}, set(), 0.0
    for index, event in enumerate(events):
        time, task = int(event["at_ns"]) / 1e3, event["task"]
        if event["event"] in ("wake", "new") and where[index] == args.cpu:
            wakeups.append([time, name(task)])
            woken[name(task)] = (time, len(switches), len(wakeups))
            seen.add(task)
        elif event["event"] == "switch" and event["cpu"] == args.cpu:
            prev, after = name(task), name(event["next_task"])
            if not switches:
                wakeups.append([max(time - 1, 0), prev])
                switches.append([max(time - 0.5, 0), "idle", prev, "I"])
            runnable = event["state"].startswith("runnable")
            asked = woken.pop(after, None)
            if asked and runnable and time - asked[0] < QUICK_US and asked[1:] == (len(switches), len(wakeups)):
                time = asked[0] + LATENCY_US
            at = max(time, at)
            switches.append([round(at, 3), prev, after, "I" if prev == "idle" else "R" if runnable else "S"])
            seen |= {task, event["next_task"]}
    seen.discard("")
    policy = lambda t: "fifo:99" if tasks[t]["comm"].startswith("migration/") else tasks[t]["policy"]
    period = 1e6 / args.hz
    line = {
        "id": os.path.basename(args.file), "kernel": "6.18", "duration_us": at, "switches": switches, "wakeups": sorted(wakeups),
        "knobs": {"base_slice_ns": args.base_slice_ns, "features": FEATURES, "rt_runtime_us": 950000, "rt_period_us": 1000000,
                  "rr_timeslice_ms": 100, "HZ": args.hz, "fair_server": {"runtime_ns": 50000000, "period_ns": 1000000000}},
        "scenario": [f"task {name(t)} hog 0 0 {policy(t)} {tasks[t]['nice']}" for t in sorted(seen, key=int)],
        "first_tick_us": first_tick(events, args.cpu, period),
        "tasks": {name(t): {"share": 0, "nr_wakeups": 0, "run_len_merged_hist_us": []} for t in seen},
    }
    with open(args.out, "w") as out:
        out.write(json.dumps(line) + "\n")
    print(f"{len(switches)} switches and {len(wakeups)} wakeups of {len(seen)} tasks on CPU {args.cpu}")


if __name__ == "__main__":
    main()
