#!/usr/bin/env python3
"""schedlab stress beside hackbench: equal parameters, blocks of four runs (A B B A or B A A B, drawn), ratio with an interval.

    experiments/stress_vs_hackbench.py [--blocks 12] [--groups 4] [--loops 300] [--cpus 0-1] [--only pipes]
                                   [--schedlab target/release/schedlab] [--for 140] [--shield]

Of each block: the ratio schedlab / hackbench of the geometric means of its two runs each, so that a drift of the machine
falls out. Printed for sockets, pipes, threads and threads with pipes: the median of the blocks' ratios with its 95 % bootstrap
interval, for the time that the programs print ("time") and for the CPU time of their processes ("cpu": start and end
included; foreign work hardly counts). Both run on the same CPUs (--cpus, default all) from the same shell.
--shield: both in a cgroup v1 CPU group of their own with 16 times the usual weight, removed at the end: on a machine with
foreign work the time is that work's otherwise. --for S: no new round of blocks after S seconds. Exit code 1: an interval of the time lies wholly outside of 0.95 to 1.05.
"""
import argparse
import atexit
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

KINDS = {
    "sockets": ([], []),
    "pipes": (["-p"], ["--pipe"]),
    "threads": (["-T"], ["--thread"]),
    "threads+pipes": (["-T", "-p"], ["--thread", "--pipe"]),
}


def run(command):
    """The printed time and the CPU time of one run, seconds."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as child:
        out = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)} failed")
    return float(re.search(r"Time: ([0-9.]+)", out).group(1)), used.ru_utime + used.ru_stime


def shield():
    """Moves this process into a CPU group of its own; gives the way back."""
    root = pathlib.Path("/sys/fs/cgroup/cpu")
    group = root / f"schedlab-bench-{os.getpid()}"
    group.mkdir()
    (group / "cpu.shares").write_text("16384")
    (group / "cgroup.procs").write_text(str(os.getpid()))

    def back():
        (root / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()

    atexit.register(back)


def interval(values, rng):
    """Median of the ratios, and the 95 % bootstrap interval of it."""
    drawn = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(4000))
    return statistics.median(values), drawn[100], drawn[3899]


def block(theirs, ours, rng):
    """Four runs; for time and CPU time the log of ours over theirs, and the medians in seconds."""
    order = rng.choice(["abba", "baab"])
    got = {"a": [], "b": []}
    for who in order:
        got[who].append(run(theirs if who == "a" else ours))
    logs = [
        sum(math.log(one[what]) for one in got["b"]) / 2 - sum(math.log(one[what]) for one in got["a"]) / 2
        for what in (0, 1)
    ]
    return logs, [[one[0] for one in got[who]] for who in "ab"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--loops", type=int, default=300)
    parser.add_argument("--cpus")
    parser.add_argument("--schedlab", default="target/release/schedlab")
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--for", type=float, default=1e9, dest="longest")
    parser.add_argument("--shield", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    size = ["-g", str(args.groups), "-l", str(args.loops)]
    pin = ["taskset", "-c", args.cpus] if args.cpus else []
    kinds = args.only or list(KINDS)
    if args.shield:
        shield()
    logs, seconds = {kind: [] for kind in kinds}, {kind: ([], []) for kind in kinds}
    start = time.monotonic()
    for _ in range(args.blocks):
        if time.monotonic() - start > args.longest:
            break
        for kind in rng.sample(kinds, len(kinds)):
            theirs, ours = KINDS[kind]
            found, times = block(
                [*pin, "hackbench", *size, *theirs], [*pin, args.schedlab, "stress", *size, *ours], rng
            )
            logs[kind].append(found)
            seconds[kind][0].extend(times[0])
            seconds[kind][1].extend(times[1])
    outside = False
    for kind in kinds:
        theirs, ours = (statistics.median(times) for times in seconds[kind])
        text = f"{kind:14} {len(logs[kind]):3} blocks  hackbench {theirs:.3f} s  schedlab {ours:.3f} s "
        for what, name in enumerate(["time", "cpu"]):
            middle, low, high = (math.exp(value) for value in interval([one[what] for one in logs[kind]], rng))
            verdict = "within 5 %" if 0.95 <= low and high <= 1.05 else "cannot tell"
            if high < 0.95 or low > 1.05:
                verdict = "outside of 5 %"
                outside |= what == 0
            text += f" {name} {middle:.3f} ({low:.3f} to {high:.3f}) {verdict}"
        print(text)
    sys.exit(outside)


if __name__ == "__main__":
    main()
