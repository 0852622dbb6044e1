#!/usr/bin/env python3
"""What each way of recording costs the recorded tasks, for each context switch.

usage: experiments/recorder_cost.py [--rounds 7] [--loops 200000] [--schedlab target/release/schedlab] [--json FILE]

Runs `perf bench sched pipe` (two processes that wake each other, both bound to one CPU: two switches for each
operation) without a recorder, under each tier of `schedlab record`, and under `perf sched record`; the recorder
runs on another CPU. The order is shuffled in each round. Measured is the CPU time of the benchmark itself (user and
system), which other load disturbs less than the elapsed time; it needs two CPUs, root and perf. Prints the extra time
of each switch (the median of the rounds, each against the bare run of its own round, with a 95 % interval by
bootstrap), its part of what `perf sched record` adds, and the events lost. Exit code 1: a tier costs more than it
promises (bpf a sixth of `perf sched record`, switches a half), or events were lost.
"""
import argparse, json, os, random, resource, shutil, signal, subprocess, sys, tempfile, time

TIERS = ["bpf", "tracepoints", "switches"]
PROMISE = {"bpf": 1 / 6, "switches": 1 / 2}


def cpu_seconds(command, cpu):
    """User and system time of `command` and its children, bound to `cpu`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
    if run.returncode:
        sys.exit(f"{command[0]} failed: is perf installed, and does `{' '.join(command)}` work?")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def start(way, args, folder):
    """Starts a recorder on the other CPU and waits until it records; None for no recorder."""
    if way == "none":
        return None
    if way == "perf sched record":
        command = ["perf", "sched", "record", "-o", f"{folder}/perf.data"]
    else:
        command = [args.schedlab, "record", "--all", "--json", "--backend", way, "-o", f"{folder}/x.slt",
                   "--recorder-cpu", str(args.recorder_cpu)]
    recorder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                preexec_fn=lambda: os.sched_setaffinity(0, {args.recorder_cpu}))
    time.sleep(1.0)
    if recorder.poll() is not None:
        sys.exit(f"{' '.join(command)} ended at once: {recorder.stdout.read().decode()}")
    return recorder


def stop(way, recorder, folder):
    """Ends the recorder; (events, lost) as far as it tells."""
    if recorder is None:
        return None
    time.sleep(0.1)
    recorder.send_signal(signal.SIGINT)
    told, _ = recorder.communicate()
    if way == "perf sched record":
        size = os.path.getsize(f"{folder}/perf.data")
        return {"bytes": size}
    said = json.loads(told)
    return {"events": said["events"], "lost": said["lost"], "recorder_cpu_ns": said["recorder_cpu_ns"],
            "bytes": said["file_bytes"], "backend": said["backend"], "seconds": said["duration_ns"] / 1e9}


def interval(values, seed=1):
    """Median and its 95 % interval by bootstrap."""
    draw = random.Random(seed)
    median = lambda list_: sorted(list_)[len(list_) // 2]
    many = sorted(median(draw.choices(values, k=len(values))) for _ in range(2000))
    return median(values), many[50], many[1949]


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--rounds", type=int, default=7)
    parse.add_argument("--loops", type=int, default=200_000)
    parse.add_argument("--schedlab", default="target/release/schedlab")
    parse.add_argument("--cpu", type=int, default=1, help="the CPU of the benchmark")
    parse.add_argument("--recorder-cpu", type=int, default=0)
    parse.add_argument("--json", help="write every measurement here")
    args = parse.parse_args()
    for program in ["perf", args.schedlab]:
        if not shutil.which(program):
            sys.exit(f"{program} is missing: {'apt-get install linux-perf' if program == 'perf' else 'cargo build --release'}")
    if not {args.cpu, args.recorder_cpu} <= os.sched_getaffinity(0) or args.cpu == args.recorder_cpu:
        sys.exit("needs two CPUs: --cpu and --recorder-cpu")
    ways = ["none", *TIERS, "perf sched record"]
    bench = ["perf", "bench", "sched", "pipe", "-l", str(args.loops)]
    per_switch, told = {way: [] for way in ways}, {way: [] for way in ways}
    order = random.Random(1)
    cpu_seconds(bench, args.cpu)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            for way in order.sample(ways, len(ways)):
                recorder = start(way, args, folder)
                used = cpu_seconds(bench, args.cpu)
                told[way].append(stop(way, recorder, folder))
                per_switch[way].append(used * 1e9 / (2 * args.loops))
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"per_switch_ns": per_switch, "recorders": told}, out, indent=1)
    sys.exit(table(ways, per_switch, told))


def table(ways, per_switch, told):
    bad = 0
    base = interval(per_switch["none"])
    extra = {way: [a - b for a, b in zip(per_switch[way], per_switch["none"])] for way in ways[1:]}
    reference = extra["perf sched record"]
    print(f"bare: {base[0]:.0f} ns of CPU a switch ({base[1]:.0f} to {base[2]:.0f})")
    print("| recorder | extra ns a switch | of bare | of `perf sched record` | events | events/s | lost |")
    print("|---|---|---|---|---|---|---|")
    for way in ways[1:]:
        middle, low, high = interval(extra[way])
        part, part_low, part_high = interval([a / b for a, b in zip(extra[way], reference)])
        runs = [run for run in told[way] if "events" in run]
        events = sum(run["events"] for run in runs)
        rate = events / sum(run["seconds"] for run in runs) if runs else 0
        lost = sum(run["lost"] for run in runs)
        print(f"| {way} | {middle:.0f} ({low:.0f} to {high:.0f}) | {middle / base[0] * 100:+.1f} % | "
              f"{part:.3f} ({part_low:.3f} to {part_high:.3f}) | {events or ''} | {rate or 0:.0f} | {lost if runs else ''} |")
        if part > PROMISE.get(way, 9) or lost:
            bad = 1
    return bad


main()
