#!/usr/bin/env python3
"""schedlab stress beside hackbench: equal parameters, interleaved in random order, ratio of times with an interval.

    benches/stress_vs_hackbench.py [--rounds 10] [--groups 4] [--loops 300] [--schedlab target/release/schedlab]

Prints for sockets, pipes and threads the median times and the ratio schedlab / hackbench of the medians with its 95 %
bootstrap interval over rounds. Exit code 1: an interval lies wholly outside of 0.95 to 1.05.
"""
import argparse
import random
import re
import statistics
import subprocess
import sys

KINDS = {
    "sockets": ([], []),
    "pipes": (["-p"], ["--pipe"]),
    "threads": (["-T"], ["--thread"]),
    "threads+pipes": (["-T", "-p"], ["--thread", "--pipe"]),
}


def seconds(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    return float(re.search(r"Time: ([0-9.]+)", out).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--loops", type=int, default=300)
    parser.add_argument("--schedlab", default="target/release/schedlab")
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    size = ["-g", str(args.groups), "-l", str(args.loops)]
    kinds = args.only or list(KINDS)
    commands = {}
    for kind in kinds:
        theirs, ours = KINDS[kind]
        commands[kind, "hackbench"] = ["hackbench", *size, *theirs]
        commands[kind, "schedlab"] = [args.schedlab, "stress", *size, *ours]
    times = {key: [] for key in commands}
    for _ in range(args.rounds):
        order = list(commands)
        rng.shuffle(order)
        for key in order:
            times[key].append(seconds(commands[key]))
    outside = False
    for kind in kinds:
        theirs, ours = times[kind, "hackbench"], times[kind, "schedlab"]
        drawn = sorted(
            statistics.median(rng.choices(ours, k=len(ours))) / statistics.median(rng.choices(theirs, k=len(theirs)))
            for _ in range(2000)
        )
        low, high = drawn[50], drawn[1949]
        ratio = statistics.median(ours) / statistics.median(theirs)
        verdict = "within 5 %" if 0.95 <= low and high <= 1.05 else "cannot tell"
        if high < 0.95 or low > 1.05:
            verdict, outside = "outside of 5 %", True
        print(
            f"{kind:14} hackbench {statistics.median(theirs):.3f} s ({min(theirs):.3f}..{max(theirs):.3f})  "
            f"schedlab {statistics.median(ours):.3f} s ({min(ours):.3f}..{max(ours):.3f})  "
            f"ratio {ratio:.3f} ({low:.3f} to {high:.3f})  {verdict}"
        )
    sys.exit(outside)


if __name__ == "__main__":
    main()
