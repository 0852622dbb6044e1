#!/usr/bin/env python3
"""How fast traces are imported, beside perf: one recording of perf, read in turns by each program.

usage: experiments/import_speed.py [--lines 1250000] [--rounds 5] [--schedlab target/release/schedlab] [--work FOLDER]

Records `perf bench sched pipe` with perf's scheduler tracepoints until `perf script` prints about so many lines, prints the text
once, and then measures in each round, in random order: `schedlab import` of the text, `schedlab import` of the perf.data,
`perf sched timehist`, and `perf script`. Prints the medians of elapsed and CPU time, lines a second, and the largest resident set
of each (`wait4`). Exit code 1: the text takes longer than timehist, or the perf.data longer than a quarter of it. With --lines
10000000 it shows that memory does not grow with the text. Needs root and perf; FOLDER (default: one of its own, removed) needs
150 bytes a line.
"""
import argparse, os, random, shutil, statistics, subprocess, sys, tempfile, time

EVENTS = ["sched_switch", "sched_waking", "sched_wakeup_new", "sched_migrate_task", "sched_process_fork", "sched_process_exit",
          "sched_process_exec"]


def spent(command):
    """Elapsed and CPU seconds, and the largest resident set in MiB."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)}: {said.decode(errors='replace')}")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--lines", type=int, default=1_250_000)
    parse.add_argument("--rounds", type=int, default=5)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parse.add_argument("--schedlab", default=os.environ.get("SCHEDLAB", f"{root}/target/release/schedlab"))
    parse.add_argument("--work", metavar="FOLDER")
    args = parse.parse_args()
    work = args.work or tempfile.mkdtemp(prefix="schedlab-import-")
    os.makedirs(work, exist_ok=True)
    try:
        measure(args, work)
    finally:
        if not args.work:
            shutil.rmtree(work, ignore_errors=True)


def measure(args, work):
    data, text = f"{work}/perf.data", f"{work}/perf.txt"
    if not os.path.exists(data):
        events = [part for event in EVENTS for part in ("-e", f"sched:{event}")]
        # An operation is two switches and two wakeups.
        subprocess.run(["perf", "record", "-q", "-a", "-m", "8M", "-o", data, *events, "--", "perf", "bench", "sched", "pipe", "-l",
                        str(args.lines // 4)], stdout=subprocess.DEVNULL, check=True)
    if not os.path.exists(text):
        with open(text, "w") as out:
            subprocess.run(["perf", "script", "-i", data, "--ns"], stdout=out, stderr=subprocess.DEVNULL, check=True)
    lines = sum(chunk.count(b"\n") for chunk in iter(lambda file=open(text, "rb"): file.read(1 << 24), b""))
    print(f"{lines} lines, {os.path.getsize(text) >> 20} MiB of text, {os.path.getsize(data) >> 20} MiB of perf.data; "
          f"{args.rounds} rounds, medians")
    commands = {
        "schedlab import, text": [args.schedlab, "import", text, "-o", f"{work}/text.slt"],
        "schedlab import, perf.data": [args.schedlab, "import", data, "-o", f"{work}/data.slt"],
        "perf sched timehist": ["perf", "sched", "timehist", "-i", data],
        "perf script": ["perf", "script", "-i", data, "--ns"],
    }
    found = {name: [] for name in commands}
    for _ in range(args.rounds):
        for name in random.sample(list(commands), len(commands)):
            found[name].append(spent(commands[name]))
    medians = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in found.items()}
    hist = medians["perf sched timehist"][0]
    print(f"{'':28}{'elapsed':>10}{'CPU':>10}{'lines/s':>12}{'of timehist':>13}{'memory':>10}")
    for name, (elapsed, cpu, memory) in medians.items():
        print(f"{name:28}{elapsed:8.2f} s{cpu:8.2f} s{lines / elapsed:12.0f}{elapsed / hist:13.2f}{memory:6.0f} MiB")
    fits = medians["schedlab import, text"][0] < hist and medians["schedlab import, perf.data"][0] < hist / 4
    print("the text takes less than timehist, perf.data less than a quarter of it" if fits else "an aim is missed")
    sys.exit(0 if fits else 1)


if __name__ == "__main__":
    main()
