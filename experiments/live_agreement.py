#!/usr/bin/env python3
"""Records five tasks with schedlab, perf, trace-cmd and ftrace at once, and compares what each recording says of them.

usage: experiments/live_agreement.py [--seconds 5] [--settle 5] [--schedlab target/release/schedlab] [--keep FOLDER]

Starts a load of five tasks: two that compute on one CPU with different weights, one that wakes by a timer, two that wake
each other over pipes. While they run, these record at the same time:

    schedlab record --all                   perf record -a                    perf record -a --clockid mono
    perf record -a -g (call chains)         perf record -p (the five alone)   trace-cmd record
    raw ftrace (an instance of tracefs)

`schedlab import` then reads the text of each and each perf.data itself, and `schedlab show --tasks` tells switches, wakeups,
run time, the worst wait after a wakeup and the worst wait after a preemption of each of the five. Two readers that share no
code with schedlab tell the same: a few lines of Python here (from the text), and `perf sched timehist`. A sixth task that
sleeps at the beginning and at the end marks the window in every recording, so no clock has to be converted.

Everything is compared with `schedlab record`. A count must be equal, a time within 0.1 ms; a difference is explained by what
was measured (events that a recorder says it lost, clocks of unlike speed, a CPU that was away between the probes of two
recorders, -p), or it is printed as NOT EXPLAINED and the exit code is 1. Exit code 3: a
recorder began too late to tell anything.

Needs root, perf and tracefs; without trace-cmd its rows are left out. Touches only tasks that it starts. tracefs is mounted in
a mount namespace of its own; trace-cmd and ftrace get instances of their own, which are removed whatever happens.
"""
import argparse, csv, ctypes, json, os, re, shutil, signal, subprocess, sys, tempfile, time
from collections import defaultdict

TASKS = ["agree-heavy", "agree-light", "agree-timer", "agree-ping", "agree-pong"]
MARK = "agree-mark"
EVENTS = ["sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task",
          "sched_process_fork", "sched_process_exit"]
TRACEFS = "/sys/kernel/tracing"
# One for each run; those of runs that were killed are removed by the next.
INSTANCES = "schedlab-agreement-"
INSTANCE = f"{INSTANCES}{os.getpid()}"
SAME_NS = 100_000
COLUMNS = ["switches", "wakeups", "run_ns", "latency_max_ns", "preempt_wait_max_ns"]
HEADINGS = ["switches", "wakeups", "run", "worst wakeup wait", "worst preempted wait"]


def spin(us):
    end = time.thread_time_ns() + us * 1000
    while time.thread_time_ns() < end:
        pass


def task(name, body, cpus=None, nice=0):
    """Forks a task of this name; it ends with its parent."""
    pid = os.fork()
    if pid:
        return pid
    libc = ctypes.CDLL(None)
    libc.prctl(1, signal.SIGKILL)
    libc.prctl(15, name.encode())
    if cpus is not None:
        os.sched_setaffinity(0, cpus)
    os.nice(nice)
    try:
        body()
    finally:
        os._exit(0)


def load():
    """Starts the five tasks and the marker; their thread ids by name, and the pipe that wakes the marker."""
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    (a_out, a_in), (b_out, b_in), (mark_out, mark_in) = os.pipe(), os.pipe(), os.pipe()

    def hog():
        while True:
            spin(10_000)

    def timer():
        while True:
            time.sleep(0.003)
            spin(300)

    def ping():
        while True:
            os.write(a_in, b"x")
            os.read(b_out, 1)
            spin(200)
            time.sleep(0.002)

    def pong():
        while True:
            os.read(a_out, 1)
            spin(100)
            os.write(b_in, b"x")

    def mark():
        while os.read(mark_out, 1):
            pass

    bodies = [(hog, {first}, 0), (hog, {first}, 3), (timer, {first}, 0), (ping, None, 0), (pong, {last}, 0)]
    tids = {name: task(name, *body) for name, body in zip(TASKS, bodies)}
    tids[MARK] = task(MARK, mark)
    return tids, mark_in


def remove_stale():
    """Removes the instances of runs that were killed."""
    for name in os.listdir(f"{TRACEFS}/instances"):
        pid = re.match(re.escape(INSTANCES) + r"(\d+)", name)
        if pid and not os.path.exists(f"/proc/{pid[1]}"):
            os.rmdir(f"{TRACEFS}/instances/{name}")


class Ftrace:
    """An instance of tracefs: a buffer with settings of its own."""

    def __init__(self, path, folder):
        self.path, self.hidden = path, []
        os.mkdir(path)
        if folder:
            self.hide(folder)
            return
        try:
            self.set("buffer_size_kb", 32768)
            self.set("trace_clock", "mono")
            for event in EVENTS:
                self.set(f"events/sched/{event}/enable", 1)
        except OSError:
            self.remove()
            raise

    def set(self, name, value):
        with open(f"{self.path}/{name}", "w") as file:
            file.write(str(value))

    def hide(self, folder):
        """trace-cmd clears filters of functions, which it does not use here, and gives up where the kernel does not allow it (this
        is so in some virtual machines): in this mount namespace empty files lie over those."""
        names = [f"{base}/{name}" for base in (TRACEFS, self.path) for name in
                 ("set_ftrace_filter", "set_ftrace_notrace", "set_ftrace_pid", "set_ftrace_notrace_pid")]
        for name in names + ["/proc/sys/kernel/ftrace_enabled"]:
            if not os.path.exists(name):
                continue
            value = "1" if name.endswith("ftrace_enabled") else ""
            try:
                with open(name, "r+") as file:
                    file.write(value)
            except OSError:
                empty = f"{folder}/hidden-{len(self.hidden)}"
                open(empty, "w").write(value)
                subprocess.run(["mount", "--bind", empty, name], check=True)
                self.hidden.append(name)

    def remove(self):
        for name in self.hidden:
            subprocess.run(["umount", name], stderr=subprocess.DEVNULL)
        # trace-cmd removes its instance itself, when nothing kills it before.
        if os.path.isdir(self.path):
            self.set("tracing_on", 0)
            self.set("events/enable", 0)
            os.rmdir(self.path)


def recorders(args, folder, tids):
    """Name, command, and the file that it writes."""
    events = [part for event in EVENTS for part in ("-e", f"sched:{event}")]
    pids = ",".join(str(pid) for pid in tids.values())
    perf = lambda name, *more: (f"perf record {' '.join(more)}",
                                ["perf", "record", "-q", "--no-bpf-event", "-m", "4M", "-o", f"{folder}/{name}.data", *events,
                                 *(pids if part == "PIDS" else part for part in more)], f"{folder}/{name}.data")
    found = [("schedlab record", [args.schedlab, "record", "--all", "-o", f"{folder}/own.slt"], f"{folder}/own.slt"),
             perf("plain", "-a"), perf("mono", "-a", "--clockid", "mono"), perf("chains", "-a", "-g"),
             perf("pids", "-p", "PIDS")]
    if shutil.which("trace-cmd"):
        plain = [part for event in EVENTS for part in ("-e", f"sched:{event}")]
        found.append(("trace-cmd record", ["trace-cmd", "record", "-B", f"{INSTANCE}-cmd", "-C", "mono", "-b", "32768",
                                           "-o", f"{folder}/trace.dat", *plain], f"{folder}/trace.dat"))
    return found


def record(args, folder, tids, mark):
    """Runs every recorder over one window; text of the raw ftrace instance goes to a file."""
    before = settings()
    remove_stale()
    ftrace = Ftrace(f"{TRACEFS}/instances/{INSTANCE}", None)
    instances, running = [ftrace], []
    try:
        if shutil.which("trace-cmd"):
            instances.append(Ftrace(f"{TRACEFS}/instances/{INSTANCE}-cmd", folder))
        for name, command, _ in recorders(args, folder, tids):
            log = open(f"{folder}/{name.replace(' ', '-')[:40]}.log", "w")
            running.append((name, subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)))
        time.sleep(args.settle)
        for name, process in running:
            if process.poll() is not None:
                sys.exit(f"`{name}` ended at once with code {process.returncode}: see {folder} (--keep)")
        earlier = stolen()
        os.write(mark, b"x")
        time.sleep(args.seconds)
        os.write(mark, b"x")
        away = stolen() - earlier
        time.sleep(0.5)
        ftrace.set("tracing_on", 0)
        for _, process in running:
            process.send_signal(signal.SIGINT)
        for name, process in running:
            process.wait(120)
        with open(f"{folder}/raw.txt", "w") as out, open(f"{ftrace.path}/trace", errors="replace") as trace:
            shutil.copyfileobj(trace, out)
        return away
    finally:
        for _, process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
        for instance in instances:
            instance.remove()
        for name, value in before.items():
            if settings()[name] != value:
                print(f"{TRACEFS}/{name} was changed by a recorder; it is put back", file=sys.stderr)
                with open(f"{TRACEFS}/{name}", "w") as file:
                    file.write(value)


def settings():
    """What of tracefs itself a recorder might change."""
    read = lambda name: open(f"{TRACEFS}/{name}").read().strip()
    clock = re.search(r"\[(\w[\w-]*)\]", read("trace_clock"))[1]
    return {"current_tracer": read("current_tracer"), "set_event": read("set_event"), "trace_clock": clock,
            "tracing_on": read("tracing_on")}


def stolen():
    """Milliseconds that the host took from this machine's CPUs."""
    return int(open("/proc/stat").readline().split()[8]) * 1000 // os.sysconf("SC_CLK_TCK")


def run(*command, to=None):
    done = subprocess.run(command, stdout=open(to, "w") if to else subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout or ""


def by_schedlab(args, folder, file, tids, alone=frozenset()):
    """What schedlab says of the window in this recording or trace; also the events of the five tasks in it. `alone`: wakeups (thread,
    and time from the beginning of the window) that this source tells and others do not."""
    name = os.path.basename(file)
    slt = file if file.endswith(".slt") else f"{folder}/{name}.slt"
    if slt != file:
        run(args.schedlab, "import", file, "-o", slt)
    out = f"{folder}/{name}.csv"
    run(args.schedlab, "export", slt, "--csv", out)
    events, lost = [], 0
    for row in csv.DictReader(open(f"{out}/events.csv")):
        at = int(row["at_ns"])
        if row["event"] == "switch":
            events.append((at, "out", int(row["tid"] or 0), row["state"]))
            events.append((at, "in", int(row["next_tid"] or 0), ""))
        elif row["event"] in ("wake", "new"):
            events.append((at, "wake", int(row["tid"]), ""))
        elif row["event"] == "lost":
            lost += int(re.sub(r"\D", "", row["detail"]) or 0)
    begin, end = window(events, tids, file)
    shown = json.loads(run(args.schedlab, "show", slt, "--tasks", "--by", "thread", "--json", "--from", f"{begin}ns", "--to",
                           f"{end}ns"))
    rows = {row["task"]["tid"]: row for row in shown["analyses"][0]["tables"]["tasks"]}
    numbers = {task: [rows.get(tids[task], {}).get(column) or 0 for column in COLUMNS] for task in TASKS}
    waits = [(int(row["tid"]), int(row["began_ns"]) - begin, int(row["wait_ns"])) for row in csv.DictReader(open(f"{out}/waits.csv"))
             if row["why"] == "woken" and begin <= int(row["ended_ns"]) <= end]
    without = {task: max((wait for tid, began, wait in waits if tid == tids[task] and (tid, began) not in alone), default=0)
               for task in TASKS}
    return {"numbers": numbers, "length": end - begin, "lost": lost, "before": begin - min(event[0] for event in events),
            "events": inside(events, tids, begin, end), "without": without if alone else None}


def window(events, tids, what):
    """From the marker's falling asleep after the first byte to that after the second."""
    at = [time for time, kind, tid, state in events if kind == "out" and tid == tids[MARK] and state[:1].upper() in ("S", "D")]
    if len(at) < 2:
        print(f"{what}: the marker fell asleep {len(at)} times, not twice: the recorder began too late on a busy machine (--settle)",
              file=sys.stderr)
        sys.exit(3)
    return at[-2], at[-1]


def inside(events, tids, begin, end):
    mine = {tids[task] for task in TASKS}
    return [(at - begin, kind, tid) for at, kind, tid, _ in events if tid in mine and begin <= at <= end]


SWITCH = re.compile(r"sched_switch: +(?:.*?prev_pid=(\d+) .*?prev_state=(\S+) ==> .*?next_pid=(\d+) "
                    r"|.*?:(\d+) \[\d+\] (\S+) ==> .*?:(\d+) \[\d+\])")
WAKING = re.compile(r"sched_(?:waking|wakeup_new): +(?:.*?comm=.*? pid=(\d+) |.*?:(\d+) \[\d+\])")
RUNNING = re.compile(r".*?[- ](\d+)(?:/\d+)? +(?:\(.*?\) +)?(?:\[\d+\]|\d+[dD.])")
STAMP = re.compile(r"\s(\d+)\.(\d+): ")


def by_python(file, tids):
    """The same numbers from the text, by a reader that knows nothing of schedlab."""
    events, alone, mine = [], set(), {tids[task] for task in TASKS}
    threads_of_1 = {int(tid) for tid in os.listdir("/proc/1/task")}
    for line in open(file, errors="replace"):
        stamp = STAMP.search(line)
        if not stamp:
            continue
        at = int(stamp[1]) * 1_000_000_000 + int(stamp[2].ljust(9, "0"))
        if switch := SWITCH.search(line):
            prev, state, next = switch[1] or switch[4], switch[2] or switch[5], switch[3] or switch[6]
            events += [(at, "out", int(prev), state), (at, "in", int(next), "")]
        elif waking := WAKING.search(line):
            events.append((at, "wake", int(waking[1] or waking[2]), ""))
            running = RUNNING.match(line)
            if int(waking[1] or waking[2]) in mine and running and int(running[1]) in threads_of_1:
                alone.add((int(waking[1] or waking[2]), at))
    begin, end = window(events, tids, file)
    of = lambda task, left_out: one_task([event for event in events if event[2] == tids[task] and not (
        event[1] == "wake" and (event[2], event[0]) in left_out)], begin, end)
    numbers = {task: of(task, ()) for task in TASKS}
    return {"numbers": numbers, "length": end - begin, "lost": 0, "before": begin - min(event[0] for event in events),
            "events": inside(events, tids, begin, end), "alone": {(tid, at - begin) for tid, at in alone},
            "without": {task: of(task, alone)[3] for task in TASKS} if alone else None}


def one_task(events, begin, end):
    switches = wakeups = ran = woken = preempted = 0
    since = on = None
    clip = lambda at: min(max(at, begin), end)
    for at, kind, _, state in events:
        within = begin <= at <= end
        if kind == "wake":
            wakeups += within
            since = since or ("woken", at)
        elif kind == "in":
            on = at
            switches += within
            if since and within:
                wait = at - since[1]
                woken, preempted = max(woken, wait * (since[0] == "woken")), max(preempted, wait * (since[0] != "woken"))
            since = None
        else:
            # A wakeup can come before the task has left the CPU.
            ran += clip(at) - clip(on) if on is not None else 0
            # Without a switch to the task before, what was there to wait for is over.
            since = ("preempted", at) if state.startswith("R") else since if on is not None else None
            on = None
    ran += end - clip(on) if on is not None and on < end else 0
    return [switches, wakeups, ran, woken, preempted]


ROW = re.compile(r"^\s*(\d+)\.(\d{6}) \s*\[\d+\]\s+.*?\[(\d+)(?:/\d+)?\]\s+(\d+\.\d{3})\s+(\d+\.\d{3})\s+(\d+\.\d{3})")


def by_timehist(data, text, tids):
    """Run time, switches and worst scheduling delay as perf's own analysis prints them."""
    marks = by_python(text, tids)
    stamps = [line for line in open(text, errors="replace") if "sched_switch" in line and f"prev_pid={tids[MARK]} " in line
              and "prev_state=S" in line]
    at = [int(stamp[1]) * 1_000_000_000 + int(stamp[2].ljust(9, "0")) for stamp in (STAMP.search(line) for line in stamps)]
    begin, end = at[-2], at[-1]
    numbers = {task: [0, None, 0, 0, None] for task in TASKS}
    names = {tids[task]: task for task in TASKS}
    us = lambda text: round(float(text) * 1000) * 1000
    for line in run("perf", "sched", "timehist", "-i", data).splitlines():
        row = ROW.match(line)
        if not row or int(row[3]) not in names:
            continue
        out = int(row[1]) * 1_000_000_000 + int(row[2]) * 1000
        delay, ran = us(row[5]), us(row[6])
        numbers_of = numbers[names[int(row[3])]]
        numbers_of[0] += begin <= out - ran <= end
        numbers_of[2] += max(0, min(out, end) - max(out - ran, begin))
        if begin <= out - ran <= end:
            numbers_of[3] = max(numbers_of[3], delay)
    # It prints whole microseconds and cuts off the rest of each row.
    cut = max(numbers[task][0] for task in TASKS) * 1000
    # A turn whose beginning is not told it counts from the last switch of the CPU on.
    events, begun = [], hidden_beginnings(text, names)
    for at, kind, tid in marks["events"]:
        if kind == "out" and (tid, at + begin) in begun:
            events.append((begun[tid, at + begin] - begin, "in", tid))
        events.append((at, kind, tid))
    return {**marks, "numbers": numbers, "cut": cut, "events": events}


def hidden_beginnings(text, names):
    """The turns of these tasks that begin with no switch to them: thread and end → the last switch of the CPU before it."""
    found, last = {}, {}
    for line in open(text, errors="replace"):
        switch, stamp, cpu = SWITCH.search(line), STAMP.search(line), re.search(r" \[(\d{3})\] ", line)
        if not switch or not stamp or not cpu:
            continue
        at = int(stamp[1]) * 1_000_000_000 + int(stamp[2].ljust(9, "0"))
        prev, next = int(switch[1] or switch[4]), int(switch[3] or switch[6])
        was, since = last.get(cpu[1], (prev, at))
        if prev in names and was != prev:
            found[prev, at] = since
        last[cpu[1]] = (next, at)
    return found


def apart(reference, source, tids):
    """The largest distance between the time stamps of one event in two recordings, where both have the same events; and for each
    task the difference in run time that these distances make: at switches from it, less at those to it."""
    split = lambda events: {key: [at for at, kind, tid in events if (kind, tid) == key]
                            for key in {(kind, tid) for _, kind, tid in events}}
    ours, theirs = split(reference["events"]), split(source["events"])
    worst = 0
    for (kind, tid), at in ours.items():
        if len(theirs.get((kind, tid), [])) == len(at):
            worst = max([worst, *(abs(a - b) for a, b in zip(at, theirs[kind, tid]))])
    return worst, {task: shifts(turns(reference["events"], tids[task]), turns(source["events"], tids[task])) for task in TASKS}


def turns(events, tid):
    """When the task came to a CPU (None: not recorded, or before the window) and when it left."""
    found, since = [], None
    for at, kind, of in events:
        if of == tid and kind == "in":
            since = at
        elif of == tid and kind == "out":
            found.append((since, at))
            since = None
    return found


def shifts(ours, theirs):
    """The difference in run time that unlike time stamps make, and turns of which one recording does not tell the beginning; None:
    the tasks left CPUs unlike often."""
    if len(ours) != len(theirs):
        return None
    stamps, untold, count = 0, 0, 0
    for (began, ended), (began_too, ended_too) in zip(ours, theirs):
        if (began is None) != (began_too is None):
            count += 1
            untold += began_too is not None and ended_too - began_too
            untold -= began is not None and ended - began
        else:
            stamps += (ended_too - ended) - (began_too - began if began is not None else 0)
    return stamps, untold, count


def left_over(reference, source, shifts):
    """The largest difference in run time that is left when both recordings have the same time stamps; None: their switches differ."""
    run = lambda side, task: side["numbers"][task][2]
    if None in shifts.values():
        return None
    return max(abs(run(source, task) - run(reference, task) - sum(shifts[task][:2])) for task in TASKS)


def judge(reference, source, what, tids):
    """The largest difference of each column, and its explanation."""
    differences = []
    for column in range(5):
        pairs = [(reference["numbers"][task][column], source["numbers"][task][column]) for task in TASKS]
        differences.append(max((abs(a - b) for a, b in pairs if b is not None), default=None)
                           if any(b is not None for _, b in pairs) else None)
    distance, shifts = apart(reference, source, tids)
    left = left_over(reference, source, shifts)
    differences.insert(3, left)
    if what.startswith("perf -p"):
        return differences, distance, ("-p records only what happens while the five run: no switch to them and no wakeup by "
                                       "others, so neither run nor waits can be told"), True
    if source["lost"]:
        return differences, distance, f"this recorder lost {source['lost']} events and says so", True
    words = []
    if any(differences[:2]):
        hidden = len(source.get("alone", ())) or reference.get("hidden", 0)
        untold = max((shift[2] for shift in shifts.values() if shift), default=0)
        few = (differences[1] or 0) <= hidden and (differences[0] or 0) <= untold
        at_edge = "cut" in source and max(d for d in differences[:2] if d is not None) <= 2
        words.append(next((text for fits, text in [
            (at_edge, "its rows are cut to whole microseconds: one more or less at an edge of the window"),
            (few, (f"{untold} switches to one of the five are not told (a thread of process 1 left the CPU: this machine hides it), and "
                   "schedlab puts them in where they are missed; " if untold else "")
             + f"{hidden} wakeups came while a thread of process 1 ran, which are told to ftrace alone"),
        ] if fits), None))
    run, waits = differences[2], [d for d in differences[4:] if d is not None]
    drift, cut = abs(source["length"] - reference["length"]), source.get("cut", 0)
    if run > SAME_NS:
        words.append(next((text for fits, text in [
            (run <= SAME_NS + drift, f"its clock runs unlike the other: {drift / 1e6:.3f} ms in all"),
            (left is not None and left <= SAME_NS, "recorders stamp one event one after the other, and what comes first at a switch to a task "
             "comes not as long before at one from it: with the same stamps the run times agree to the time in `same stamps`"),
            (left is not None and left <= SAME_NS + cut, "the same, and its rows are cut to whole microseconds"),
        ] if fits), None))
    if any(wait > SAME_NS for wait in waits):
        longest = max(numbers[column] or 0 for side in (reference, source) for numbers in side["numbers"].values() for column in (3, 4))
        began = min(reference["before"], source["before"])
        without = source.get("without") or {}
        others = [abs(without[task] - reference["numbers"][task][3]) for task in without]
        others += [abs(a - b) for a, b in ((side["numbers"][task][4] for side in (reference, source)) for task in TASKS) if b is not None]
        words.append(next((text for fits, text in [
            (max(waits) <= SAME_NS + 2 * distance, f"the CPU was away between the probes of one event: up to {distance / 1e6:.3f} ms"),
            (without and max(others) <= SAME_NS + 2 * distance, "without the waits that begin with such a wakeup the worst ones agree"),
            (longest > began, f"the wait of {longest / 1e6:.0f} ms began before this recorder did, {began / 1e6:.0f} ms before the window"),
        ] if fits), None))
    fine = not any(word is None for word in words)
    return differences, distance, "; ".join(word or "NOT EXPLAINED" for word in words) or "same", fine


def cell(column, value):
    if value is None:
        return "-"
    return str(value) if column < 2 else f"{value / 1e6:.3f} ms"


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) if i in (0, len(row) - 1) else text.rjust(width)
                        for i, (text, width) in enumerate(zip(row, widths))).rstrip())


def compare(args, folder, tids, away):
    script = lambda name, *more: run("perf", "script", "-i", f"{folder}/{name}.data", *more, to=f"{folder}/{name}.txt")
    script("plain")
    script("mono", "--ns", "-F", "comm,pid,tid,cpu,time,event,trace")
    script("chains", "--ns")
    script("pids", "--ns")
    own = by_schedlab(args, folder, f"{folder}/own.slt", tids)
    sources = []

    def text(name, file):
        read = by_python(file, tids)
        sources.append((f"{name}: text, schedlab", by_schedlab(args, folder, file, tids, read["alone"])))
        sources.append((f"{name}: text, Python", read))
        return read["alone"]

    for name, what in [("plain", "perf -a"), ("mono", "perf -a --clockid mono"), ("chains", "perf -a -g")]:
        text(what, f"{folder}/{name}.txt")
        sources.append((f"{what}: perf.data, schedlab", by_schedlab(args, folder, f"{folder}/{name}.data", tids)))
        sources.append((f"{what}: perf sched timehist", by_timehist(f"{folder}/{name}.data", f"{folder}/{name}.txt", tids)))
    sources.append(("perf -p: text, schedlab", by_schedlab(args, folder, f"{folder}/pids.txt", tids)))
    sources.append(("perf -p: perf.data, schedlab", by_schedlab(args, folder, f"{folder}/pids.data", tids)))
    if os.path.exists(f"{folder}/trace.dat"):
        run("trace-cmd", "report", "-t", "-i", f"{folder}/trace.dat", to=f"{folder}/trace-cmd.txt")
        alone = text("trace-cmd report", f"{folder}/trace-cmd.txt")
        run("trace-cmd", "report", "-t", "-l", "-i", f"{folder}/trace.dat", to=f"{folder}/trace-cmd-l.txt")
        sources.append(("trace-cmd report -l: text, schedlab", by_schedlab(args, folder, f"{folder}/trace-cmd-l.txt", tids, alone)))
        run("trace-cmd", "report", "-t", "-R", "-i", f"{folder}/trace.dat", to=f"{folder}/trace-cmd-r.txt")
        sources.append(("trace-cmd report -R: text, schedlab", by_schedlab(args, folder, f"{folder}/trace-cmd-r.txt", tids, alone)))
    text("ftrace", f"{folder}/raw.txt")

    own["hidden"] = max(len(source.get("alone", ())) for _, source in sources)
    print(f"{own['length'] / 1e9:.3f} s; the host took {away} ms of CPU time away meanwhile\n")
    table([["schedlab record", *HEADINGS, ""]] +
          [[task, *(cell(column, own["numbers"][task][column]) for column in range(5)), ""] for task in TASKS])
    print()
    legend = {}
    headings = HEADINGS[:3] + ["same stamps"] + HEADINGS[3:]
    rows, fine = [["largest difference to it", *headings, "one event", ""]], True
    for name, source in sources:
        differences, distance, words, good = judge(own, source, name, tids)
        fine &= good
        marks = [legend.setdefault(word, f"({len(legend) + 1})") for word in words.split("; ")] if words != "same" else ["same"]
        rows.append([name, *(cell(column, value) for column, value in enumerate(differences)), f"{distance / 1e6:.3f} ms", " ".join(marks)])
    table(rows)
    print()
    for word, mark in legend.items():
        print(f"{mark} {word}")
    print("one event: the largest distance between the time stamps of one event in the two recordings")
    return fine


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--seconds", type=float, default=5)
    parse.add_argument("--settle", type=float, default=5, help="seconds that the recorders have to begin")
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parse.add_argument("--schedlab", default=os.environ.get("SCHEDLAB", f"{root}/target/release/schedlab"))
    parse.add_argument("--keep", metavar="FOLDER", help="keep all recordings and texts there")
    args = parse.parse_args()
    if os.geteuid() or not shutil.which("perf"):
        sys.exit("this needs root and perf")
    if os.environ.get("SCHEDLAB_AGREEMENT") != "inside":
        # A mount namespace of its own: tracefs is there for the recorders and for no other process.
        os.environ["SCHEDLAB_AGREEMENT"] = "inside"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
    if not os.path.isdir(f"{TRACEFS}/events"):
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACEFS], check=True)
    folder = args.keep or tempfile.mkdtemp(prefix="schedlab-agreement-")
    os.makedirs(folder, exist_ok=True)
    tids, mark = load()
    try:
        away = record(args, folder, tids, mark)
    finally:
        for pid in tids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    try:
        fine = compare(args, folder, tids, away)
    finally:
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
