#!/usr/bin/env python3
"""kill -9 at random moments of a managed run: of the agent's process, its guardian, both (there is a second guardian), all
three (then `schedlab restore` is given), or the target. After each: is
any thread left with another policy, nice value or affinity, any process or journal left over, any CPU starved?

    experiments/live_kills.py [--rounds 1000] [--binary target/debug/schedlab] [--seed 1]

Targets in turn: two hogs, a fork bomb of bounded size, 500 threads, one that changes its own policy meanwhile, sleepers
that wake each other. Manages CPU 0 and needs root. Prints a line per kind, and every fault; ends with 1 when there is one.
Only processes that this script started are killed.
"""
import argparse, os, random, signal, subprocess, sys, tempfile, threading, time

BOMB = """
import os, sys, time
sys.stdin.close()
end = time.time() + 1.5
children = []
# Bounded: at most 40 children at a time, two levels.
while time.time() < end:
    if len(children) < 40:
        pid = os.fork()
        if pid == 0:
            if os.fork() == 0:
                time.sleep(0.002); os._exit(0)
            x = 0
            for i in range(2000): x += i
            os._exit(0)
        children.append(pid)
    try:
        while True:
            done, _ = os.waitpid(-1, os.WNOHANG)
            if done == 0: break
            children.remove(done)
    except ChildProcessError:
        children = []
time.sleep(60)
"""
THREADS = """
import threading, time
def work():
    while True:
        x = 0
        for i in range(300): x += i
        time.sleep(0.02)
for _ in range(500): threading.Thread(target=work, daemon=True).start()
time.sleep(60)
"""
CHANGER = """
import os, time
kinds = [(os.SCHED_BATCH, 0), (os.SCHED_OTHER, 0), (os.SCHED_IDLE, 0), (os.SCHED_OTHER, 0)]
n = 0
while True:
    end = time.time() + 0.01
    while time.time() < end: pass
    os.sched_setscheduler(0, kinds[n % 4][0], os.sched_param(0)); n += 1
    if n % 7 == 0: time.sleep(0.005)
"""
PIPES = """
import os
a, b = os.pipe(), os.pipe()
if os.fork() == 0:
    while True: os.write(b[1], os.read(a[0], 1))
while True:
    os.write(a[1], b'x'); os.read(b[0], 1)
"""
LONGEST = 40
# The CPU that the runs manage.
MANAGED = 0
TARGETS = [
    ("hogs", ["sh", "-c", "while :; do :; done & while :; do :; done & wait"]),
    ("fork bomb", [sys.executable, "-c", BOMB]),
    ("500 threads", [sys.executable, "-c", THREADS]),
    ("changes its policy", [sys.executable, "-c", CHANGER]),
    ("pipes", [sys.executable, "-c", PIPES]),
]
VICTIMS = ["agent", "guardian", "both", "target", "all three"]
SCHEDULERS = ["rr:slice_ns=2ms", "fifo-per-cpu", "layers", "linux-6.18", "shinjuku:quantum=500us"]


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def members(group):
    """Processes of a process group."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            rest = read(f"/proc/{name}/stat").rpartition(")")[2].split()
            if len(rest) > 2 and int(rest[2]) == group and rest[0] not in "ZX":
                found.append(int(name))
    return found


def states(group):
    """By thread: policy, real-time priority, nice, CPUs."""
    found = {}
    for pid in members(group):
        try:
            tids = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for tid in tids:
            rest = read(f"/proc/{pid}/task/{tid}/stat").rpartition(")")[2].split()
            status = read(f"/proc/{pid}/task/{tid}/status")
            cpus = [l.split(":")[1].strip() for l in status.splitlines() if l.startswith("Cpus_allowed_list")]
            if len(rest) > 38 and cpus and rest[0] not in "ZX":
                found[int(tid)] = (int(rest[38]), int(rest[37]), int(rest[16]), cpus[0])
    return found


def children(pid):
    text = "".join(read(f"/proc/{pid}/task/{tid}/children") for tid in listdir(f"/proc/{pid}/task"))
    return [int(word) for word in text.split()]


def listdir(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


class Watchdog(threading.Thread):
    """A thread of the usual class that wants each CPU now and then; how long it stood in its queue at most, by the kernel's
    account: not what a hypervisor took meanwhile, nor how long other threads of this script had the interpreter."""

    def __init__(self, cpu):
        super().__init__(daemon=True)
        self.cpu, self.worst, self.stop = cpu, 0.0, False
        self.round, self.waits = (0, ""), {}

    def longest(self, count):
        return sorted(((wait, number, kind) for (number, kind), wait in self.waits.items()), reverse=True)[:count]

    def run(self):
        os.sched_setaffinity(0, {self.cpu})
        while not self.stop:
            (queued, stolen), round_ = self.account(), self.round
            time.sleep(0.02)
            queued_then, stolen_then = self.account()
            # Stolen time is known to 10 ms.
            wait = max(queued_then - queued - (stolen_then - stolen), 0.0)
            self.worst = max(self.worst, wait)
            self.waits[round_] = max(self.waits.get(round_, 0.0), wait)

    def account(self):
        """Seconds in the queue of this thread so far, and stolen from its CPU."""
        queued = int(read("/proc/thread-self/schedstat").split()[1]) / 1e9
        line = next(line for line in read("/proc/stat").splitlines() if line.startswith(f"cpu{self.cpu} "))
        return queued, int(line.split()[8]) / os.sysconf("SC_CLK_TCK")


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def end_group(target):
    """Ends a target with all that it started; it leads a session of its own."""
    try:
        os.killpg(target.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    target.wait()


def restore(options, environment):
    subprocess.run([options.binary, "restore"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(seconds, done):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if done():
            return True
        time.sleep(0.005)
    return done()


def one(options, rng, number, environment, room, faults, started):
    kind, command = TARGETS[number % len(TARGETS)]
    victim = VICTIMS[(number // len(TARGETS)) % len(VICTIMS)]
    target = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True)
    started.append(target)
    # The last net, in a session of its own and never managed: whatever dies here, no hog lives longer than this. (A round
    # that waited for something else left one in a real-time class once, and the machine stood still.)
    net = subprocess.Popen(["sh", "-c", f"sleep {LONGEST}; kill -KILL -- -{target.pid}"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    started.append(net)
    time.sleep(0.05 + rng.random() * 0.1)
    status = read(f"/proc/{target.pid}/status").splitlines()
    allowed = [line.split(":")[1].strip() for line in status if line.startswith("Cpus_allowed_list")][0]
    driver = subprocess.Popen([options.binary, "attach", "--scheduler", rng.choice(SCHEDULERS), "--pid", str(target.pid),
                               "--cpus", "0"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    # Any moment: while it starts, while it takes threads on, while it runs.
    time.sleep(rng.random() * 0.45)
    if victim == "guardian":
        # A driver that has none yet has none to lose, and goes on.
        wait_for(10, lambda: children(driver.pid) or driver.poll() is not None)
    guardian = children(driver.pid)
    second = [pid for one in guardian for pid in children(one)]
    if victim in ("guardian", "both", "all three"):
        for pid in guardian:
            kill(pid)
    if victim == "all three":
        # After the first one, which would start another.
        for pid in second:
            kill(pid)
    if victim in ("agent", "both", "all three"):
        kill(driver.pid)
    if victim == "target":
        end_group(target)
    killed = time.monotonic()
    if victim == "all three" or victim == "both" and not second:
        # At once: what no guardian watches has real-time priorities until then, and a hog among it lets no other on its CPU,
        # not even the rest of the dead driver. (`both` before there was a second guardian is the same.)
        restore(options, environment)
    # A killed target: its driver ends by itself. A killed guardian: so does the driver, with everything given back.
    if not wait_for(15, lambda: driver.poll() is not None):
        faults.append(f"round {number} ({kind}, {victim}): the driver did not end")
        driver.kill()
    fair = (0, 3, 5)
    good = lambda state: state[0] in fair and state[1] == 0 and state[3] == allowed and \
        (kind == "changes its policy" or state[0] == 0)
    wrong = lambda: {tid: s for tid, s in states(target.pid).items() if not good(s)}
    # How long it took is printed; a fault is what does not come back.
    if not wait_for(10, lambda: not wrong()):
        faults.append(f"round {number} ({kind}, {victim}): left changed: {list(wrong().items())[:5]}")
    took = time.monotonic() - killed
    alive = lambda: [pid for pid in guardian + second if read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] not in ([], ["Z"])]
    if not wait_for(5, lambda: not alive()):
        faults.append(f"round {number} ({kind}, {victim}): guardian {alive()} lives on")
    end_group(target)
    # What was begun and had no guardian yet is what `restore` is for.
    restore(options, environment)
    left = [name for name in listdir(room) if os.path.getsize(os.path.join(room, name)) > 0]
    if left:
        faults.append(f"round {number} ({kind}, {victim}): left in the folder: {left}")
        for name in left:
            os.unlink(os.path.join(room, name))
    return kind, victim, took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--binary", default="target/debug/schedlab")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("needs root")
    rng, faults, done = random.Random(options.seed), [], {}
    watchdogs = [Watchdog(cpu) for cpu in sorted(os.sched_getaffinity(0))]
    for watchdog in watchdogs:
        watchdog.start()
    with tempfile.TemporaryDirectory(prefix="schedlab-kills-") as room:
        os.chmod(room, 0o700)
        environment = dict(os.environ, SCHEDLAB_RUN_DIR=room)
        for number in range(options.rounds):
            started = []
            for watchdog in watchdogs:
                watchdog.round = (number, f"{TARGETS[number % len(TARGETS)][0]}, {VICTIMS[(number // len(TARGETS)) % len(VICTIMS)]}")
            try:
                kind, victim, took = one(options, rng, number, environment, room, faults, started)
            finally:
                # Whatever went wrong here: no hog of this experiment stays.
                for group in started:
                    end_group(group)
            done.setdefault((kind, victim), []).append(took)
            for fault in faults[-1:]:
                if fault.startswith(f"round {number} "):
                    print(fault, flush=True)
            if sys.stdout.isatty() or number % 100 == 99:
                print(f"{number + 1} rounds, {len(faults)} faults", flush=True)
    for (kind, victim), times in sorted(done.items()):
        print(f"{kind:20} {victim:9} {len(times):5} kills; all as before after {1000 * max(times):.0f} ms at most")
    for watchdog in watchdogs:
        watchdog.stop = True
        worst = ", ".join(f"{1000 * wait:.0f} ms in round {number} ({kind})" for wait, number, kind in watchdog.longest(5))
        print(f"CPU {watchdog.cpu}: the longest waits: {worst}")
        print(f"CPU {watchdog.cpu}: a thread of the usual class waited {1000 * watchdog.worst:.0f} ms at most")
        # What the same round cost on a CPU that nothing manages is not the managed run's doing: 500 threads that start.
        others = [other for other in watchdogs if other.cpu != MANAGED]
        elsewhere = lambda round_: max((other.waits.get(round_, 0.0) for other in others), default=0.0)
        own = lambda wait, round_: wait - (elsewhere(round_) if watchdog.cpu == MANAGED else 0.0)
        if any(own(wait, round_) > 1.0 for round_, wait in watchdog.waits.items()):
            faults.append(f"CPU {watchdog.cpu} was starved")
            print(f"fault: {faults[-1]}")
    print(f"{options.rounds} kills, {len(faults)} faults")
    sys.exit(1 if faults else 0)


main()
