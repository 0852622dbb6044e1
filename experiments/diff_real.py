#!/usr/bin/env python3
"""`schedlab diff` on real recordings: equal runs must be called equal, a planted regression of 20 % must be found.

usage: experiments/diff_real.py [--times 10] [--recordings 6] [--seconds 1] [--folder target/diff] [--schedlab target/debug/schedlab] [--record-only | --judge-only]

The workload is our own: on one CPU a server burns the CPU for 400 us whenever a timer wakes it (every 4 ms, with some
jitter from a fixed seed), beside a hog of nice 5. In the planted runs the server needs 480 us: 20 % more of a response,
and 20 % more share. Per round three folders are filled in turns, in shuffled order: plain, plain, slow. Then
  equal:      diff plain plain --fail-if 'diff-server response p50 > +10%'   must pass, and the verdict must name no
              change of the server's response or share;
  regression: diff plain slow with the same gate must fail (exit 1).
--recordings 1 compares single recordings, which cannot know how the machine drifts between them: on a shared host expect
wrong answers. Needs root and two CPUs. Exit code 1: a wrong answer.
"""
import argparse, json, os, random, subprocess, sys, time

import pairs

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUT, SIDE = 1, 0
GATE = "diff-server response p50 > +10%"
# Burns CPU time, not wall time: what it is preempted for is not in it.
SERVER = r"""
import ctypes, os, random, sys, time
ctypes.CDLL(None).prctl(15, b"diff-server", 0, 0, 0)
need, dice, at = int(sys.argv[1]), random.Random(7), time.monotonic_ns()
clock = lambda: time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)
while True:
    at += 4_000_000 + dice.randrange(-400_000, 400_000)
    time.sleep(max(0, at - time.monotonic_ns()) / 1e9)
    end = clock() + need
    while clock() < end:
        pass
"""
HOG = r"""
import ctypes
ctypes.CDLL(None).prctl(15, b"diff-hog", 0, 0, 0)
while True:
    pass
"""


def record(args, name, need_ns):
    file = f"{args.folder}/{name}.slt"
    os.makedirs(os.path.dirname(file), exist_ok=True)
    bed = pairs.Bed(args.folder)
    try:
        # What else runs on the CPU gets a sixtieth of it.
        with open(os.path.join(bed.group(""), "cpu.shares"), "w") as shares:
            shares.write("65536")
        bed.start([sys.executable, "-c", SERVER, str(need_ns)], "", SUT)
        bed.start([sys.executable, "-c", HOG], "", SUT, prefix=["nice", "-n", "5"])
        time.sleep(0.4)
        subprocess.run([args.schedlab, "record", "-o", file, "--all", "--no-calibration", "--for", f"{args.seconds}s", "--recorder-cpu", str(SIDE)],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    finally:
        for run in bed.running:
            run.kill()
        bed.end()
    return file


def server(args, before, after):
    """(exit code, the server's cells that were told apart)"""
    run = subprocess.run([args.schedlab, "diff", before, after, "--fail-if", GATE, "--json"], capture_output=True, text=True)
    if run.returncode not in (0, 1, 3):
        sys.exit(run.stderr)
    found = json.loads(run.stdout)
    told = {}
    for subject in found["subjects"]:
        if subject["kind"] == "task" and subject["name"] == "diff-server":
            for cell in subject["cells"]:
                if cell["metric"] in ("response p50", "share"):
                    told[cell["metric"]] = (cell["judgement"], cell["after"] / cell["before"] - 1)
    return run.returncode, told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--recordings", type=int, default=6, help="in each folder")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--folder", default=f"{ROOT}/target/diff")
    parser.add_argument("--schedlab", default=f"{ROOT}/target/debug/schedlab")
    parser.add_argument("--record-only", action="store_true", help="make the recordings (under something quiet)")
    parser.add_argument("--judge-only", action="store_true", help="judge those that are there")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    dice = random.Random(1)
    if not args.judge_only:
        for time_ in range(args.times):
            order = [("a", 400_000), ("b", 400_000), ("slow", 480_000)]
            for turn in range(args.recordings):
                dice.shuffle(order)
                for name, need in order:
                    record(args, f"{time_}-{name}/{turn}", need)
    if args.record_only:
        return 0
    equal = regression = 0
    for time_ in range(args.times):
        file = lambda name: f"{args.folder}/{time_}-{name}" + ("/0.slt" if args.recordings == 1 else "")
        if not os.path.exists(file("slow")):
            continue
        code, told = server(args, file("a"), file("b"))
        same = code == 0 and all(judgement in ("same", "cannot-tell") for judgement, _ in told.values())
        equal += same
        worse, changed = server(args, file("a"), file("slow"))
        regression += worse == 1
        words = lambda told: ", ".join(f"{metric} {change * 100:+.1f} % ({judgement})" for metric, (judgement, change) in told.items())
        print(f"{time_}: equal runs: {'equal' if same else 'WRONG'} [{words(told)}]; planted 20 %: "
              f"{'found' if worse == 1 else 'MISSED'} [{words(changed)}]", flush=True)
    print(f"equal runs called equal {equal} of {args.times}, planted regression found {regression} of {args.times}")
    return 0 if equal == regression == args.times else 1


if __name__ == "__main__":
    sys.exit(main())
