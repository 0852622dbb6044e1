#!/usr/bin/env python3
"""Redis beside sysbench on one CPU, under six ways to schedule them: what `colocate` finds, beside what one would do by hand.

    experiments/colocate_redis.py [open|closed] [rounds]        (root; redis-server, sysbench; builds what it needs, unless
                                                             SCHEDLAB and REDLOAD name both programs;
                                                             CHOSEN=fifo takes the setting as given, GOAL='...' another
                                                             goal than p99 < alone + 10 %; CPU=1 SIDE=0
                                                             changes the places of server and client; ROWS=file keeps
                                                             all rows there, so that a run can be made in pieces)

Rows, in random order in each round: dedicated (Redis beside a SCHED_IDLE spinner, so that the CPU does not sleep), default,
SCHED_IDLE for sysbench by hand, SCHED_FIFO for Redis by hand, the setting that `schedlab colocate` chose, and
`schedlab attach --scheduler layers`. The client is ours (crates/measure): open loop at a quarter of what Redis can, from the
intended send time; or closed loop. It runs on the other CPU, with SCHED_FIFO 1. Medians over the rounds, with the range. What is
left is what neither Redis nor the hypervisor has of the CPU: kernel threads and our agent take from it.
"""
import json, os, random, signal, statistics, subprocess, sys, tempfile, time

CPU, SIDE = os.environ.get("CPU", "0"), os.environ.get("SIDE", "1")
PORT, SECONDS = "7791", 2
LOOP = sys.argv[1] if len(sys.argv) > 1 else "open"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 10
RATE = 4000
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAB = os.environ.get("SCHEDLAB", os.path.join(ROOT, "target/release/schedlab"))
LOAD = os.environ.get("REDLOAD", os.path.join(ROOT, "target/release/examples/redload"))
# Several goals are separated by semicolons.
GOAL = os.environ.get("GOAL", "client response p99 < alone + 10%")
ROWS = os.environ.get("ROWS")
QUIET = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def build():
    if "SCHEDLAB" in os.environ:
        return
    subprocess.run(["cargo", "build", "-q", "--release", "-p", "schedlab-cli"], cwd=ROOT, check=True)
    subprocess.run(["cargo", "build", "-q", "--release", "-p", "schedlab-measure", "--example", "redload"], cwd=ROOT, check=True)


def pinned(*command):
    return subprocess.Popen(["taskset", "-c", CPU, *command], stdin=subprocess.DEVNULL, **QUIET)


def batch():
    return pinned("sysbench", "cpu", "--time=0", "run")


def spinner():
    return pinned("chrt", "--idle", "0", "sh", "-c", "while :; do :; done")


def cpu_seconds(process):
    """All its threads, children not counted."""
    fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def taken_away():
    """Seconds that the hypervisor has had of the CPU since it started, in ticks. They are in no task's CPU time."""
    line = next(line for line in open("/proc/stat") if line.startswith(f"cpu{CPU} "))
    return int(line.split()[8]) / os.sysconf("SC_CLK_TCK")


def chrt(process, *policy):
    subprocess.run(["chrt", *policy[:1], "--all-tasks", "--pid", *policy[1:], str(process.pid)], check=True, **QUIET)


def client(seconds):
    kind = f"open:{RATE}" if LOOP == "open" else "closed"
    return ["chrt", "--fifo", "1", "taskset", "-c", SIDE, LOAD, f"127.0.0.1:{PORT}", kind, "8", "200ms", seconds]


def loaded(server, beside):
    """One measurement: what the client saw, and the CPU time of both parties for each second."""
    before = cpu_seconds(server), cpu_seconds(beside), taken_away(), time.monotonic()
    seed = str(random.randrange(1 << 30))
    command = [*client(f"{SECONDS}s"), seed, "PING"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    took = time.monotonic() - before[3]
    redis, work, away = (now - then for now, then in zip((cpu_seconds(server), cpu_seconds(beside), taken_away()), before))
    ladder = report["latency"]
    row = {name: ladder[f"{name}_ns"] / 1e6 for name in ("p50", "p99", "p99_9", "max")}
    row.update(throughput=report["throughput_per_s"], batch=work / took, stolen=away / took, left=(took - redis - away) / took)
    return row


def with_batch(server, act):
    work = batch()
    time.sleep(0.3)
    try:
        return act(work)
    finally:
        work.kill()
        work.wait()


def dedicated(server):
    idle = spinner()
    time.sleep(0.2)
    try:
        return loaded(server, idle)
    finally:
        idle.kill()
        idle.wait()


def by_hand_idle(server):
    def act(work):
        chrt(work, "--idle", "0")
        return loaded(server, work)
    return with_batch(server, act)


def by_hand_fifo(server):
    def act(work):
        chrt(server, "--fifo", "1")
        try:
            return loaded(server, work)
        finally:
            chrt(server, "--other", "0")
    return with_batch(server, act)


def layers(server):
    def act(work):
        said = tempfile.TemporaryFile("w+")
        agent = subprocess.Popen([LAB, "attach", "--scheduler", "layers", "--cpus", CPU, "--pid", f"{server.pid},{work.pid}",
                                  "--task", "sysbench=batch"], stdout=subprocess.DEVNULL, stderr=said)
        time.sleep(0.5)
        try:
            return loaded(server, work)
        finally:
            agent.send_signal(signal.SIGINT)
            code = agent.wait()
            # A guardian that kills its agent says why after that.
            time.sleep(0.5 if code == -signal.SIGKILL else 0)
            said.seek(0)
            words = said.read()
            if code == -signal.SIGKILL and "the guardian ended" in words:
                print(f"  layers: no row this time: {words.strip()}", flush=True)
                return None
            assert code == 0, f"schedlab attach ended with {code}: {words}"
    return with_batch(server, act)


def colocate(server, goal, more):
    """`colocate` as a user runs it: it looks for the mildest setting itself, or keeps one for as long as we measure."""
    goals = [word for one in goal.split(";") for word in ("--goal", one.strip())]
    command = [LAB, "colocate", "--json", "--serve-pid", str(server.pid), "--cpus", CPU, *goals,
               "--client", f"127.0.0.1:{PORT}", *(["--client-rate", str(RATE)] if LOOP == "open" else ["--client-closed"])]
    return subprocess.run(command + more, capture_output=True, text=True)


def choose(server):
    def act(work):
        ran = colocate(server, GOAL, ["--batch-pid", str(work.pid), "--round", "1s", "--rounds", "5"])
        assert ran.returncode in (0, 1, 3), ran.stderr
        found = json.loads(ran.stdout)
        for tried in found["tried"]:
            if tried["round"]:
                print(f"  colocate tried {tried['actuator']:<10} {tried['round']['goals'][0] / 1e6:8.3f} ms {tried['outcome']}")
        for one in found["distances"]:
            of = one["of"]
            print(f"  last candidate against alone: {100 * of['median']:+.1f} % ({100 * of['low']:+.1f} .. {100 * of['high']:+.1f} % "
                  f"holds the median of {one['pairs']} pairs with {100 * of['confidence']:.0f} %), {one['outcome']}; "
                  f"undecided: {found['undecided']}; the batch stood still for {found['stood_still_ns'] / 1e9:.0f} s")
        print(f"  colocate chose {found['chosen']} for '{GOAL}': {found['outcome']}", flush=True)
        return found["chosen"]
    return with_batch(server, act)


def chosen(name):
    """What that setting gives while `colocate` keeps it, seen by the client of the other rows."""
    def act(server, work):
        # It is chosen already and is kept here to be measured: a goal that the default misses and everything better meets.
        load = subprocess.Popen([*client("60s"), "1", "PING"], **QUIET)
        agent = subprocess.Popen([LAB, "colocate", "--serve-pid", str(server.pid), "--cpus", CPU, "--goal", "latency p99 < -10%",
                                  "--batch-pid", str(work.pid), "--try", name, "--round", f"{SECONDS}s", "--rounds", "1",
                                  "--keep-for", "60s"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        kept = any(line.startswith(f"keeping {name}") for line in agent.stderr)
        load.kill()
        load.wait()
        # Of five lengths of a round it records one: any moment of them.
        time.sleep(random.uniform(0, 5 * SECONDS) if kept else 0)
        row = loaded(server, work) if kept else None
        agent.send_signal(signal.SIGINT)
        agent.communicate()
        return row
    return lambda server: with_batch(server, lambda work: act(server, work))


def main():
    build()
    # Also when it is ended early, server and batch work end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    server = pinned("redis-server", "--port", PORT, "--save", "", "--appendonly", "no")
    time.sleep(0.5)
    try:
        # In pieces: what an earlier run chose.
        name = os.environ.get("CHOSEN") or choose(server)
        rows = {"dedicated": dedicated, "default": lambda s: with_batch(s, lambda w: loaded(s, w)), "SCHED_IDLE by hand": by_hand_idle,
                "FIFO by hand": by_hand_fifo, "layers": layers}
        if name not in (None, "default"):
            rows[f"colocate ({name})"] = chosen(name)
        seen = {row: [] for row in rows}
        if ROWS and os.path.exists(ROWS):
            seen.update(json.load(open(ROWS)))
        for _ in range(ROUNDS):
            together = time.time_ns()
            for row in random.sample(list(rows), len(rows)):
                value = rows[row](server)
                if value:
                    seen[row].append({**value, "round": together})
            if ROWS:
                json.dump(seen, open(ROWS, "w"))
    finally:
        server.kill()
        server.wait()
    print(f"Redis and sysbench on CPU {CPU}, {LOOP} loop, {max(map(len, seen.values()))} interleaved rounds of {SECONDS} s; ms; median (range)")
    names = ["p50", "p99", "p99_9", "max", "throughput", "batch", "stolen"]
    print("".join(f"{name:>24}" for name in ["", *names, "batch of what is left", "p99 : dedicated's"]))
    alone = {value["round"]: value["p99"] for value in seen["dedicated"]}
    for row, values in seen.items():
        if not values:
            print(f"{row:>24}  (never kept: the goal was missed)")
            continue
        cells = []
        for name in names:
            all_ = [value[name] for value in values]
            cells.append(f"{statistics.median(all_):.3g} ({min(all_):.3g}..{max(all_):.3g})")
        # Of all rounds together: ticks of 10 ms say little of one.
        of_left = sum(value["batch"] for value in values) / max(1e-9, sum(value["left"] for value in values))
        # Round by round: the machine's speed changes from one to the next.
        pairs = [value["p99"] / alone[value["round"]] for value in values if value["round"] in alone]
        ratio = f"{statistics.median(pairs):.3f} ({min(pairs):.2f}..{max(pairs):.2f})"
        print(f"{row:>24}" + "".join(f"{cell:>24}" for cell in [*cells, f"{of_left:.3f}", ratio]))

    calm(seen)


def calm(seen):
    """The rounds that say something: stolen time is in every latency, and in no setting's power."""
    print("rounds of which the hypervisor took less than 2 %:")
    for row, values in seen.items():
        values = [value for value in values if value["stolen"] < 0.02]
        p99, most = [value["p99"] for value in values], [value["max"] for value in values]
        said = f"p99 {statistics.median(p99):.3g} ({min(p99):.3g}..{max(p99):.3g}), max {max(most):.3g}" if values else "none"
        print(f"{row:>24}  {len(values)}: {said}")


main()
