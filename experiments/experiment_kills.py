#!/usr/bin/env python3
"""kill -9 of `schedlab experiment` at random moments; afterwards nothing of it may be left.

    experiments/experiment_kills.py [--rounds 100] [--seed 1] [--schedlab target/release/schedlab]

Every second kill is counted from the moment when its programs run, the others from its start; 0 to 4 s. Looked at after each,
for up to a minute: processes that it started (they carry a mark in their environment, no matter what their parent is), its control
group, its journals, network devices and namespaces, sysctls of the scheduler, policy and affinity of this script. Experiments take turns. Needs root and the experiments' programs. Exit code 1: something was left.
"""
import argparse
import atexit
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LOADS = [
    ["redis-batch", "--rounds", "50", "--for", "400ms", "--client", "open:2000,redis-benchmark"],
    ["redis-batch", "--rounds", "50", "--for", "400ms", "--client", "closed", "--network", "loopback"],
    ["two-hogs", "--rounds", "50", "--for", "300ms"],
    ["sleeper", "--rounds", "50", "--for", "300ms"],
    ["smp", "--rounds", "50", "--tasks", "2,16,64"],
]
MARK = "SCHEDLAB_KILL_MARK"
GROUPS = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]


def names(folder):
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def marked(mark):
    """Processes that carry the mark, with their words."""
    found = []
    for pid in filter(str.isdigit, names("/proc")):
        try:
            if mark.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append(f"{pid} {words.strip()}")
        except OSError:
            pass
    return found


def machine():
    """What of the machine an experiment could change."""
    settings = {}
    for name in names("/proc/sys/kernel"):
        if name.startswith("sched_"):
            settings[name] = pathlib.Path("/proc/sys/kernel", name).read_text()
    policy = (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, os.getpriority(os.PRIO_PROCESS, 0))
    return settings, names("/sys/class/net"), names("/run/netns"), policy, sorted(os.sched_getaffinity(0))


def groups(pid):
    return [path for path in (f"{root}/schedlab-{pid}" for root in GROUPS) if os.path.exists(path)]


def left(mark, pid, room, before):
    """What is left, in words; empty when nothing is."""
    found = [f"process {one}" for one in marked(mark)]
    found += [f"control group {path}" for path in groups(pid)]
    found += [f"journal {name}" for name in names(room)]
    now = machine()
    if now != before:
        found.append(f"the machine: {before} became {now}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedlab", default="target/release/schedlab")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    rng = random.Random(args.seed)
    before, faults, met, longest = machine(), 0, {"group": 0, "programs": 0}, 0.0
    for number in range(args.rounds):
        folder = tempfile.mkdtemp(prefix="experiment-kill-")
        mark, room = f"{MARK}={folder}", f"{folder}/run"
        load = LOADS[number % len(LOADS)]
        environment = {**os.environ, MARK: folder, "SCHEDLAB_RUN_DIR": room}
        child = subprocess.Popen(
            [args.schedlab, "experiment", *load],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        # Also when this script is ended.
        atexit.register(child.kill)
        for _ in range(6000 if number % 2 else 0):
            # schedlab, its guardian, a program.
            if len(marked(mark)) > 2 or child.poll() is not None:
                break
            time.sleep(0.01)
        moment = rng.uniform(0, 4)
        time.sleep(moment)
        met["group"] += bool(groups(child.pid))
        met["programs"] += len(marked(mark)) > 2
        if child.poll() is not None:
            sys.exit(f"{' '.join(load)} ended by itself with {child.returncode}: nothing can be said")
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        start = time.monotonic()
        found = left(mark, child.pid, room, before)
        while found and time.monotonic() - start < 60:
            time.sleep(0.01)
            found = left(mark, child.pid, room, before)
        longest = max(longest, time.monotonic() - start)
        if found:
            faults += 1
            print(f"kill {number} of {load[0]} after {moment:.3f} s left: {'; '.join(found)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{args.rounds} kills, {met['group']} met a control group, {met['programs']} met programs; "
        f"{faults} left something; all was gone {longest:.2f} s after the kill at the latest"
    )
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
