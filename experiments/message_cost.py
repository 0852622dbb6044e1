#!/usr/bin/env python3
"""What recording messages costs a request, beside the recorder without them.

usage: experiments/message_cost.py [--rounds 9] [--requests 150000] [--schedlab target/release/schedlab] [--json FILE]

Runs two loads, each bound to one CPU, with the recorder (backend bpf) on another CPU: redis-server with redis-benchmark at full
speed over loopback, and `perf bench sched pipe`. In each round, in random order: no recorder, `--messages off`, `--messages on`.
Measured is the CPU time of server and client (user and system), which other load disturbs less than the elapsed time. Prints for
each load the time a request (or operation) with the recorder of both kinds, the median of the ratios within rounds with a 95 %
interval by bootstrap, facts a second, those lost, and bytes a fact in the file. Then both CPUs at once, each with a redis of its own,
and each with a `perf bench sched pipe`: nothing may be lost at 300,000 facts a second. Last, what the messages of a Redis request are
made of: the run time of the BPF programs (by the kernel's statistics of them, kernel.bpf_stats_enabled, which are on for that and then
as before; they add about 65 ns to each run), and how much more a system call without a fact costs, because the kernel looks at the
return of each.

Needs root, two CPUs, redis and perf. Exit code 1: a redis request costs more than 1.10 of the recorder without messages, a fact takes
more than 3 bytes, or something was lost.
"""
import argparse, glob, json, os, random, re, resource, shutil, signal, subprocess, sys, tempfile, time

WAYS = ["none", "off", "on"]
MOST_RATIO, MOST_BYTES = 1.10, 3.0
FACT_BLOCKS = [0x80000006, 0x80000007]
STATISTICS = "/proc/sys/kernel/bpf_stats_enabled"


def bound(cpu):
    return lambda: os.sched_setaffinity(0, {cpu})


def used(pid):
    """CPU seconds of a process so far, with those of its threads."""
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9


def server(port, cpu):
    command = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=bound(cpu))
    while subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True).stdout != b"PONG\n":
        if process.poll() is not None:
            sys.exit("redis-server ended at once")
        time.sleep(0.05)
    return process


def client(port, requests):
    return ["redis-benchmark", "-p", str(port), "-t", "get", "-n", str(requests), "-c", "20", "-q"]


def children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(command, cpu):
    """CPU seconds of a command bound to a CPU."""
    before = children()
    if subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=bound(cpu)).returncode:
        sys.exit(f"{' '.join(command)} failed")
    return children() - before


def start(way, args, file):
    """Starts a recorder and waits until it records; None for no recorder."""
    if way == "none":
        return None
    command = [args.schedlab, "record", "--all", "--json", "--backend", "bpf", "--messages", way, "--no-calibration",
               "--recorder-cpu", str(args.recorder_cpu), "-o", file]
    recorder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=bound(args.recorder_cpu))
    recorder.stderr.readline()
    return recorder


def stop(recorder):
    if recorder is None:
        return None
    recorder.send_signal(signal.SIGINT)
    return json.loads(recorder.communicate()[0])


def fact_bytes(file):
    """Bytes of the blocks of facts (docs/recording-format.md)."""
    total = 0
    with open(file, "rb") as data:
        data.seek(16)
        while len(head := data.read(44)) == 44:
            stored = int.from_bytes(head[8:12], "little")
            total += 44 + stored if int.from_bytes(head[4:8], "little") in FACT_BLOCKS else 0
            data.seek(stored, 1)
    return total


def interval(values, seed=1):
    """Median and its 95 % interval by bootstrap."""
    draw = random.Random(seed)
    median = lambda list_: sorted(list_)[len(list_) // 2]
    many = sorted(median(draw.choices(values, k=len(values))) for _ in range(2000))
    return median(values), many[50], many[1949]


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--rounds", type=int, default=9)
    parse.add_argument("--requests", type=int, default=150_000)
    parse.add_argument("--schedlab", default="target/release/schedlab")
    parse.add_argument("--cpu", type=int, default=1, help="the CPU of the load")
    parse.add_argument("--recorder-cpu", type=int, default=0)
    parse.add_argument("--port", type=int, default=17379)
    parse.add_argument("--json", help="write every measurement here")
    args = parse.parse_args()
    for program in ["perf", "redis-server", args.schedlab]:
        if not shutil.which(program):
            sys.exit(f"{program} is missing")
    redis = server(args.port, args.cpu)
    try:
        sys.exit(measure(args, redis))
    finally:
        redis.terminate()
        redis.wait()


def one_request(args, redis):
    """CPU seconds of a request, server and client together."""
    before = used(redis.pid)
    spent = run(client(args.port, args.requests), args.cpu)
    return (spent + used(redis.pid) - before) / args.requests


def pipe(operations):
    return ["perf", "bench", "sched", "pipe", "-l", str(operations)]


def one_operation(args, _):
    operations = args.requests // 2
    return run(pipe(operations), args.cpu) / operations


def measure(args, redis):
    loads = {"redis request": one_request, "sched pipe operation": one_operation}
    each = {load: {way: [] for way in WAYS} for load in loads}
    told = {load: [] for load in loads}
    order = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/x.slt"
        for load, once in loads.items():
            once(args, redis)
        for number in range(args.rounds):
            for load, once in loads.items():
                for way in order.sample(WAYS, len(WAYS)):
                    recorder = start(way, args, file)
                    each[load][way].append(once(args, redis))
                    said = stop(recorder)
                    if way == "on":
                        told[load].append({**said, "fact_bytes": fact_bytes(file)})
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
        both = {"redis": on_both(args, file), "sched pipe": side_by_side(args, file, lambda _: pipe(2 * args.requests))}
        parts = {way: made_of(args, redis, way, file) for way in WAYS[1:]}
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"seconds": each, "told": told, "both": both, "parts": parts}, out, indent=1)
    return table(each, told, both, parts)


def programs(pid):
    """Run time in ns and runs of each BPF program of a process."""
    found = {}
    for name in glob.glob(f"/proc/{pid}/fdinfo/*"):
        with open(name) as file:
            fields = dict(re.findall(r"(\w+):\s+(\d+)", file.read()))
        if "run_time_ns" in fields:
            found[fields["prog_id"]] = (int(fields["run_time_ns"]), int(fields["run_cnt"]))
    return found


def statistics(value):
    with open(STATISTICS, "r+") as file:
        before = file.read().strip()
        file.seek(0)
        file.write(value)
    return before


def made_of(args, redis, way, file):
    """Of a request: ns in BPF programs, their runs, the runs of the busiest one; and ns of a system call that makes no fact."""
    recorder = start(way, args, file)
    calls = [sys.executable, "-c", "import os\nfor _ in range(1000000): os.getppid()"]
    call = min(run(calls, args.cpu) for _ in range(5)) / 1e6
    before_it = statistics("1")
    before = programs(recorder.pid)
    one_request(args, redis)
    after = programs(recorder.pid)
    statistics(before_it)
    stop(recorder)
    each = [(time - before[id][0], runs - before[id][1]) for id, (time, runs) in after.items() if id in before]
    time, runs = (sum(column) / args.requests for column in zip(*each))
    return {"programs_ns": time, "runs": runs, "most": max(runs for _, runs in each) / args.requests, "call_ns": call * 1e9}


def on_both(args, file):
    """Both CPUs busy with a redis each, the recorder between them."""
    others = [server(args.port + 1 + cpu, cpu) for cpu in (args.cpu, args.recorder_cpu)]
    said = side_by_side(args, file, lambda cpu: client(args.port + 1 + cpu, 2 * args.requests))
    for process in others:
        process.terminate()
        process.wait()
    return said


def side_by_side(args, file, command):
    """What the recorder says of a load on each of both CPUs."""
    recorder = start("on", args, file)
    loads = [subprocess.Popen(command(cpu), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=bound(cpu))
             for cpu in (args.cpu, args.recorder_cpu)]
    for process in loads:
        process.wait()
    return {**stop(recorder), "fact_bytes": fact_bytes(file)}


def table(each, told, both, parts):
    bad = 0
    print("| load | bare | with the recorder | with messages | messages / recorder | facts/s | lost | bytes a fact |")
    print("|---|---|---|---|---|---|---|---|")
    for load, ways in each.items():
        bare, off, on = (interval(ways[way])[0] * 1e6 for way in WAYS)
        ratio = interval([b / a for a, b in zip(ways["off"], ways["on"])])
        facts = sum(run["facts"] for run in told[load])
        seconds = sum(run["duration_ns"] for run in told[load]) / 1e9
        lost = sum(run["facts_lost"] + run["lost"] for run in told[load])
        size = sum(run["fact_bytes"] for run in told[load]) / max(facts, 1)
        print(f"| {load} | {bare:.2f} us | {off:.2f} us | {on:.2f} us | {ratio[0]:.3f} ({ratio[1]:.3f} to {ratio[2]:.3f}) | "
              f"{facts / seconds:.0f} | {lost} | {size:.2f} |")
        bad |= lost > 0 or size > MOST_BYTES or (load.startswith("redis") and ratio[0] > MOST_RATIO)
    for load, said in both.items():
        facts, events = (said[what] / said["duration_ns"] * 1e9 for what in ("facts", "events"))
        size = said["fact_bytes"] / said["facts"]
        print(f"\n{load} on both CPUs: {facts:.0f} facts/s and {events:.0f} events/s; {said['facts_lost']} facts and "
              f"{said['lost']} events lost; {size:.2f} bytes a fact.")
        bad |= said["facts_lost"] + said["lost"] > 0 or size > MOST_BYTES
    off, on = (parts[way] for way in WAYS[1:])
    print(f"\nOf a redis request: BPF programs {on['programs_ns']:.0f} ns in {on['runs']:.1f} runs with messages, "
          f"{off['programs_ns']:.0f} ns in {off['runs']:.1f} runs without. A system call that makes no fact costs "
          f"{on['call_ns'] - off['call_ns']:.0f} ns more; a request has {on['most']:.1f} system calls.")
    return int(bad)


main()
