#!/usr/bin/env python3
"""The flight recorder as a service, for an hour under load, with faults thrown at it: incidents that were planted against those that were
caught, its CPU time, its memory, and what it did about the faults.

usage: experiments/flight_hour.py [--schedlab target/release/schedlab] [--minutes 60] [--load 'perf bench sched pipe -l 1000000000'] [--log FILE]

A victim sleeps a millisecond again and again on CPU 1; a real-time hog takes that CPU from it for 60 ms, every 2 to 6 seconds. The rule says
'victim wait > 40ms'. The victim is a witness of its own waits: it looks at the clock and at the kernel's account of it (/proc/self/schedstat: time it waited, and how
often it got a CPU). On a busy machine the kernel's fair server (Linux 6.12) may give it the CPU in between: several short waits are no long one, and a hog that made them planted nothing. Meanwhile the load switches on CPU 0. Faults, in turns: SIGUSR1; a wrong file with SIGHUP, then the right one; the folder (a
tmpfs of 64 MB) is filled; the recorder is killed (SIGKILL) and started again. What is planted while it does not run counts apart. Needs root and two CPUs. Exit code 1: an incident was
missed while it ran.
"""
import argparse, json, os, random, shlex, shutil, signal, subprocess, sys, tempfile, threading, time, urllib.request

# Says at standard output when it did not go on for more than 41 ms though it wanted to sleep for one: beginning and end, how long it waited for a CPU
# meanwhile, and how often it got one.
VICTIM = """
import ctypes, os, time
ctypes.CDLL(None).prctl(15, b"victim")
os.sched_setaffinity(0, {1})
account = os.open("/proc/self/schedstat", os.O_RDONLY)
def look():
    ran, waited, turns = map(int, os.pread(account, 100, 0).split())
    return time.monotonic(), waited, turns
while True:
    begin = look()
    time.sleep(0.001)
    end = look()
    if end[0] - begin[0] > 0.041: print(begin[0], end[0], (end[1] - begin[1]) / 1e9, end[2] - begin[2], flush=True)
"""
HOG = """
import os, sys, time
os.sched_setaffinity(0, {1}); os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
begin = time.monotonic()
while time.monotonic() - begin < 0.06: pass
"""
RULES = """folder = "{work}/out"
max-total = "24M"
ring = "3s"
after = "500ms"
metrics = "127.0.0.1:{port}"
by = "command"
[[rule]]
name = "victim"
when = "victim wait > 40ms"
at-most = "100000/1h"
"""


class Service:
    def __init__(self, program, work, port):
        self.program, self.work, self.port, self.lines, self.process = program, work, port, [], None
        self.cpu = self.seconds = 0.0
        self.peak = 0

    def write(self, text=None):
        with open(f"{self.work}/flight.toml", "w") as file:
            file.write(text or RULES.format(work=self.work, port=self.port))

    def start(self):
        self.began = time.monotonic()
        self.process = subprocess.Popen([self.program, "flight", f"{self.work}/flight.toml"], stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, args=(self.process.stderr,), daemon=True).start()
        while not any(line.get("event") == "started" for line in self.lines[-5:]):
            time.sleep(0.05)
            if self.process.poll() is not None:
                sys.exit(f"schedlab flight ended: {self.lines}")

    def read(self, pipe):
        for line in pipe:
            try:
                self.lines.append({**json.loads(line), "at": time.monotonic()})
            except ValueError:
                self.lines.append({"event": "?", "message": line})

    def look(self):
        """CPU time so far, and the largest memory."""
        try:
            fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
            status = open(f"/proc/{self.process.pid}/status").read()
        except OSError:
            return
        self.now = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.peak = max(self.peak, int(status.split("VmHWM:")[1].split()[0]))

    def end(self, how):
        self.look()
        self.process.send_signal(how)
        code = self.process.wait()
        self.cpu, self.seconds = self.cpu + self.now, self.seconds + time.monotonic() - self.began
        return code

    def metric(self, name):
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10).read().decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def long_waits(self):
        """The victim's waits of more than 32.8 ms in the histogram, which does not depend on rules."""
        of = lambda le: self.metric(f'schedlab_wait_seconds_bucket{{le="{le}",command="victim"}}')
        return of("+Inf") - of("0.032768")


def fault(service, number, work):
    """Throws the next fault; returns its name, and what came of it."""
    seen = len(service.lines)
    kind = ["SIGUSR1", "wrong file", "disk full", "SIGKILL"][number % 4]
    if kind == "SIGUSR1":
        service.process.send_signal(signal.SIGUSR1)
        wanted = "written"
    elif kind == "wrong file":
        service.write("rule = 7")
        service.process.send_signal(signal.SIGHUP)
        time.sleep(1)
        service.write()
        service.process.send_signal(signal.SIGHUP)
        wanted = "not-reloaded"
    elif kind == "disk full":
        with open(f"{work}/out/filler", "wb", buffering=0) as file:
            try:
                while file.write(b"\0" * 65536): pass
            except OSError:
                pass
        service.process.send_signal(signal.SIGUSR1)
        wanted = "not-written"
    else:
        service.end(signal.SIGKILL)
        service.start()
        wanted = "started"
    for _ in range(100):
        if any(line["event"] == wanted for line in service.lines[seen:]):
            break
        time.sleep(0.1)
    if kind == "disk full":
        os.remove(f"{work}/out/filler")
        # What went elsewhere is removed: it is this script's.
        for line in service.lines[seen:]:
            if line["event"] == "not-written" and "file" in line and not line["file"].startswith(work):
                shutil.rmtree(os.path.dirname(line["file"]), ignore_errors=True)
    came = [line["event"] for line in service.lines[seen:]]
    return kind, wanted in came


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedlab", default="target/release/schedlab")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--load", default="perf bench sched pipe -l 1000000000")
    parser.add_argument("--port", type=int, default=9921)
    parser.add_argument("--hurry", type=float, default=1, help="plant so many times as often")
    parser.add_argument("--log", help="write the recorder's lines there, and when each incident was planted")
    options = parser.parse_args()
    work = tempfile.mkdtemp()
    os.mkdir(f"{work}/out")
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=64M", "tmpfs", f"{work}/out"])
    service = Service(os.path.abspath(options.schedlab), work, options.port)
    others, witnessed = [], []
    try:
        service.write()
        others.append(subprocess.Popen([sys.executable, "-c", VICTIM], start_new_session=True, stdout=subprocess.PIPE, text=True))
        watch = lambda pipe: witnessed.extend(tuple(map(float, line.split())) for line in pipe)
        threading.Thread(target=watch, args=(others[0].stdout,), daemon=True).start()
        load = ["taskset", "-c", "0", *shlex.split(options.load)]
        others.append(subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True))
        service.start()
        planted, counted, in_histogram, faults = [], [], [], []
        end, next_fault = time.monotonic() + options.minutes * 60, time.monotonic() + 20
        while time.monotonic() < end:
            time.sleep(random.uniform(2, 6) / options.hurry)
            begin, before, long_before = time.monotonic(), service.metric("schedlab_incidents_total"), service.long_waits()
            subprocess.check_call([sys.executable, "-c", HOG])
            planted.append((begin, time.monotonic()))
            # Of several waits that join one recording only the first has a line; all are counted.
            time.sleep(0.5)
            counted.append(service.metric("schedlab_incidents_total") > before)
            in_histogram.append(service.long_waits() > long_before)
            service.look()
            if time.monotonic() > next_fault:
                # Time for the incident before it: it is planted while the recorder runs.
                time.sleep(1.5)
                next_fault = time.monotonic() + 20
                faults.append(fault(service, len(faults), work))
                time.sleep(3.5)
        time.sleep(2)
        events, lost = service.metric("schedlab_events_total"), service.metric("schedlab_events_lost_total")
        lived = time.monotonic() - service.began
        code = service.end(signal.SIGTERM)
    finally:
        for other in others:
            # With what it started: `perf bench` has children.
            os.killpg(other.pid, signal.SIGKILL)
        if service.process and service.process.poll() is None:
            service.process.kill()
        subprocess.call(["umount", f"{work}/out"])
        shutil.rmtree(work, ignore_errors=True)
    incidents = [line for line in service.lines if line["event"] in ("incident", "joined")]
    if options.log:
        with open(options.log, "w") as file:
            for line in [*service.lines, *({"event": "planted", "at": begin, "until": finish, "in_histogram": there} for (begin, finish), there in zip(planted, in_histogram)),
                         *({"event": "delayed", "at": begin, "until": end, "waited": waited, "turns": turns} for begin, end, waited, turns in witnessed)]:
                print(json.dumps(line), file=file)
    def seen(is_one):
        return [any(is_one(turns) and waited > 0.040 and begin <= end and start <= finish for start, end, waited, turns in witnessed) for begin, finish in planted]
    held_up, in_parts = seen(lambda turns: turns == 1), seen(lambda turns: turns > 1)
    told = [any(begin <= line["at"] <= finish + 1.5 for line in incidents) for begin, finish in planted]
    caught = [line or count for line, count in zip(told, counted)]
    missed = sum(held and not one for held, one in zip(held_up, caught))
    print(next(line["message"] for line in service.lines if line["event"] == "started"))
    parts = sum(part and not held for part, held in zip(in_parts, held_up))
    print(f"planted {len(planted)}, {sum(held_up)} of which made it wait in one piece by the kernel's own account: {missed} of these missed; {parts} made several waits. Caught {sum(caught)} "
          f"({sum(told)} with a line of their own); recordings {sum(line['event'] == 'written' for line in service.lines)}, "
          f"oldest removed {sum(line['event'] == 'removed' for line in service.lines)} times; exit code {code}")
    for kind in dict.fromkeys(kind for kind, _ in faults):
        outcomes = [came for other, came in faults if other == kind]
        print(f"fault {kind}: {len(outcomes)} times, answered as it should be {sum(outcomes)} times")
    print(f"{service.seconds:.0f} s: {100 * service.cpu / service.seconds:.2f} % of a CPU, {service.peak / 1024:.1f} MiB at most, "
          f"{events / lived:.0f} events a second at the end, {lost:.0f} lost")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
