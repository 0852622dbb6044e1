#!/usr/bin/env python3
"""Prediction pairs: a workload is recorded under setting A, what it would do under setting B is predicted from that, and B
is recorded too.

usage: experiments/pairs.py record WORKLOAD... [--folder target/pairs] [--seconds 3] [--only CHANGE...] [--rounds 3]
                        [--first 1] [--messages]
       experiments/pairs.py toml [WORKLOAD...] [--folder target/pairs]
       experiments/pairs.py table [WORKLOAD...] [--folder target/pairs] [--json FILE]

WORKLOAD: redis (one connection) beside sysbench; nginx (one connection) under wrk beside a parallel compile; postgres under pgbench beside
stress; redisbench (redis-benchmark, eight connections) and nginx16 (wrk, sixteen) beside sysbench. Server and batch share one CPU, client and recorder have the other. A and B are recorded one right after the other,
in several rounds (all pairs, then all again): a virtual machine's speed changes from one recording to the next, by 10 to 30 % for a
server's request, and with one recording each that is most of what is seen. The pair `same` changes nothing: what two
recordings of one setting differ by is the floor of every error. Control groups are of the CPU controller (cgroup v1, as on
this kernel). Needs root, two CPUs, redis-server, sysbench, nginx, wrk, gcc, make, postgresql, stress, and
`cargo build -p schedlab-cli -p schedlab-measure --bins --examples`.

`table` prints for each pair the throughput (activations finished a second) and the share of server and batch, and the
p99 of the server's response (wakeup to blocking again), recorded and predicted, the server's CPU time for each activation,
and the medians of the errors. With several rounds each figure is the median over the rounds. Exit code 1: the medians
are above 10 % (throughput) or 25 % (p99).

`record --messages` keeps what the tasks exchange, too; `toml` writes FOLDER/pairs.toml, and `cargo xtask pairs FOLDER --replay both`
judges both replays on the same recordings, in one table.
"""
import argparse, glob, json, os, shutil, signal, statistics, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SUT, SIDE = 1, 0
GROUPS = "/sys/fs/cgroup/cpu"
TOP = "schedlab-pairs"
FILLER = "../schedlab-pairs-filler"
# How B differs from A: the recording it starts from, and the same as a variant. {batch}, {server}: a clause for each.
CHANGES = {
    "same": ("base", None),
    "batch": ("base", "{batch} policy=batch"),
    "nice": ("base", "{batch} nice=10"),
    "idle": ("base", "{batch} policy=idle"),
    "fifo": ("base", "{server} policy=fifo:1"),
    "affinity": ("base", "{batch} cpus=0"),
    "second": ("second", "{second} off"),
    "weight": ("groups", "/schedlab-pairs/batch cpu.weight=400"),
    "max": ("groups", "/schedlab-pairs/batch cpu.max=20ms/100ms"),
    "unlimited": ("max", "/schedlab-pairs/batch cpu.max=max"),
}
# The setting that shows what came of a change, where it is not named like the change.
CAME = {"same": "base", "second": "base", "unlimited": "groups"}


class Bed:
    """What is started here is ended here."""

    def __init__(self, folder):
        self.work, self.folder, self.running, self.made = tempfile.mkdtemp(), folder, [], []
        os.chmod(self.work, 0o755)

    def group(self, name):
        path = os.path.normpath(os.path.join(GROUPS, TOP, name))
        if not os.path.isdir(path):
            os.makedirs(path)
            self.made.append(path)
        return path

    def start(self, command, group="", cpu=SUT, prefix=(), log=None, **more):
        tasks = os.path.join(self.group(group), "tasks")

        def child():
            os.setsid()
            with open(tasks, "w") as file:
                file.write("0")
            os.sched_setaffinity(0, {cpu})
        out = open(os.path.join(self.work, log), "w") if log else subprocess.DEVNULL
        run = subprocess.Popen([*prefix, *command], preexec_fn=child, stdout=out, stderr=subprocess.STDOUT, **more)
        self.running.append(run)
        return run

    def end(self):
        for run in reversed(self.running):
            try:
                # In a group of least weight beside busy CPUs it would hardly get round to dying.
                with open(f"{GROUPS}/tasks", "w") as tasks:
                    tasks.write(str(run.pid))
            except OSError:
                pass
            try:
                os.killpg(run.pid, signal.SIGTERM if run.poll() is None else signal.SIGKILL)
            except ProcessLookupError:
                pass
        deadline = time.time() + 4
        for run in self.running:
            try:
                run.wait(max(0.1, deadline - time.time()))
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
        for path in sorted(glob.glob(os.path.join(GROUPS, f"{TOP}*", "**"), recursive=True), key=len, reverse=True):
            if os.path.isdir(path):
                for _ in range(40):
                    try:
                        os.rmdir(path)
                        break
                    except OSError:
                        time.sleep(0.05)
        shutil.rmtree(self.work, ignore_errors=True)


def until(what, ready):
    for _ in range(100):
        if ready():
            return
        time.sleep(0.05)
    sys.exit(f"{what} did not begin within 5 s")


def quietly(*command, **more):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more).returncode == 0


class Redis:
    server, batch, client = ["redis-server"], ["sysbench"], "redload"

    def serve(self, bed, group, prefix, second):
        port = 7790 + second
        run = bed.start(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                         "--io-threads", "1", "--daemonize", "no"], group, prefix=prefix)
        until("redis", lambda: quietly("redis-cli", "-p", str(port), "ping"))
        subprocess.run(["redis-cli", "-p", str(port), "-x", "set", "bits"], input=os.urandom(131072),
                       stdout=subprocess.DEVNULL, check=True)
        return [run.pid]

    def load(self, bed, seconds, second):
        run = bed.start([f"{ROOT}/target/debug/examples/redload", f"127.0.0.1:{7790 + second}", "closed", "1", "200ms",
                         f"{seconds}s", "1", "BITCOUNT", "bits"], "client", cpu=SIDE, log=f"redload{second}")
        return [run.pid]

    def work(self, bed, group, prefix, seconds, cpu):
        bed.start(["sysbench", "cpu", "--threads=1", f"--time={seconds}", "run"], group, cpu, prefix)


# In each file that is compiled: some 1.8 ms of CPU time each.
FUNCTIONS = 20_000


class Nginx:
    # The shell has a name of its own: other people's shells are no part of the batch.
    server, batch, client = ["nginx"], ["cc1", "as", "cc", "make", "batch-sh", "rm"], "wrk"

    def serve(self, bed, group, prefix, second):
        home = os.path.join(bed.work, f"nginx{second}")
        os.makedirs(home)
        with open(f"{home}/index.html", "w") as page:
            page.write("x" * 16384)
        with open(f"{home}/conf", "w") as conf:
            conf.write(f"""daemon off; master_process off; pid {home}/pid; error_log /dev/null;
events {{}} http {{ access_log off; gzip on; gzip_comp_level 5; gzip_types *; client_body_temp_path {home}; proxy_temp_path {home};
fastcgi_temp_path {home}; uwsgi_temp_path {home}; scgi_temp_path {home};
server {{ listen 127.0.0.1:{7794 + second}; root {home}; }} }}""")
        run = bed.start(["nginx", "-p", home, "-c", f"{home}/conf"], group, prefix=prefix)
        until("nginx", lambda: quietly("sh", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{7794 + second}", executable="/bin/bash")
              or quietly("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{7794 + second}"))
        return [run.pid]

    def load(self, bed, seconds, second):
        # One connection: the server sleeps after each answer, so that an activation is a request. With four it hardly ever
        # slept beside the compile, and activations counted nothing.
        run = bed.start(["wrk", "-t1", "-c1", f"-d{seconds}s", "-H", "Accept-Encoding: gzip",
                         f"http://127.0.0.1:{7794 + second}/index.html"], "client", cpu=SIDE, log=f"wrk{second}")
        time.sleep(0.2)
        children = [int(task) for task in os.listdir(f"/proc/{run.pid}/task")]
        return children

    def work(self, bed, group, prefix, seconds, cpu):
        tree = os.path.join(bed.work, "tree")
        os.makedirs(tree)
        shutil.copy("/bin/bash", f"{tree}/batch-sh")
        # Two large files, half a minute of CPU time each, so that compilers do not end within a recording: a prediction knows
        # only the commands that were recorded, and where a variant gives the batch more time than it had then they run out.
        objects = " ".join(f"f{i}.o" for i in range(2))
        with open(f"{tree}/Makefile", "w") as make:
            make.write(f"SHELL = {tree}/batch-sh\nCFLAGS = -O1\nall: {objects}\n")
        for i in range(2):
            with open(f"{tree}/f{i}.c", "w") as file:
                for j in range(FUNCTIONS):
                    file.write(f"int f{i}_{j}(int a, int b) {{ int s = {j}; for (int k = a; k < b; k++) s = s * 31 + k % "
                               f"{j + 1}; return s; }}\n")
        script = "while :; do make -s -j2; rm -f *.o; done"
        bed.start([f"{tree}/batch-sh", "-c", script], group, cpu, prefix, cwd=tree)


class Postgres:
    server, batch, client = ["postgres"], ["stress"], "pgbench"
    bin = (sorted(glob.glob("/usr/lib/postgresql/*/bin")) or ["/usr/bin"])[-1]

    def serve(self, bed, group, prefix, second):
        port, home = 7797 + second, os.path.join(bed.work, f"pg{second}")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        template = os.path.join(bed.folder, "postgres-template")
        if not os.path.isdir(template):
            os.makedirs(home)
            shutil.chown(home, "postgres", "postgres")
            subprocess.run([*as_user, f"{self.bin}/initdb", "-D", f"{home}/data", "-A", "trust", "-N"], check=True,
                           stdout=subprocess.DEVNULL)
            self.run(bed, as_user, home, port, group, prefix, second)
            subprocess.run(["pgbench", "-i", "-q", "-s", "2", "-h", home, "-p", str(port), "-U", "postgres", "postgres"], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            first = bed.running.pop()
            first.send_signal(signal.SIGINT)
            first.wait()
            subprocess.run(["cp", "-a", home, template], check=True)
        else:
            subprocess.run(["cp", "-a", template, home], check=True)
        # Real-time policies are given by root, and the server refuses to run as root.
        self.run(bed, as_user, home, port, group, prefix, second)
        self.home = getattr(self, "home", {}) | {second: home}
        return []

    def run(self, bed, as_user, home, port, group, prefix, second):
        bed.start([*as_user, f"{self.bin}/postgres", "-D", f"{home}/data", "-p", str(port), "-k", home, "-F"], group,
                  prefix=prefix, log=f"postgres{second}.log")
        until("postgres", lambda: quietly("psql", "-h", home, "-p", str(port), "-U", "postgres", "-c", "select 1"))

    def load(self, bed, seconds, second):
        name = f"pairs{second}"
        run = bed.start(["pgbench", "-S", "-c", "4", "-j", "1", "-T", str(seconds), "-h", self.home[second], "-p",
                         str(7797 + second), "-U", "postgres", "postgres"], "client", cpu=SIDE,
                        env=os.environ | {"PGAPPNAME": name}, log=f"pgbench{second}")
        time.sleep(0.3)
        asked = subprocess.run(["psql", "-h", self.home[second], "-p", str(7797 + second), "-U", "postgres", "-Atc",
                                f"select pid from pg_stat_activity where application_name = '{name}'"],
                               capture_output=True, text=True)
        return [run.pid, *map(int, asked.stdout.split())]

    def work(self, bed, group, prefix, seconds, cpu):
        bed.start(["stress", "-c", "1", "-t", str(seconds)], group, cpu, prefix)


class RedisBench(Redis):
    """Eight connections, so that several requests share an activation."""
    client = "redis-benchmark"

    def load(self, bed, seconds, second):
        run = bed.start(["redis-benchmark", "-p", str(7790 + second), "-c", "8", "-n", "100000000", "bitcount", "bits"], "client",
                        cpu=SIDE, log=f"bench{second}")
        return [run.pid]


class Nginx16(Nginx):
    """Sixteen connections beside a hog."""
    batch = ["sysbench"]

    def load(self, bed, seconds, second):
        run = bed.start(["wrk", "-t1", "-c16", f"-d{seconds}s", "-H", "Accept-Encoding: gzip",
                         f"http://127.0.0.1:{7794 + second}/index.html"], "client", cpu=SIDE, log=f"wrk{second}")
        return [run.pid]

    work = Redis.work


WORKLOADS = {"redis": Redis, "nginx": Nginx, "postgres": Postgres, "redisbench": RedisBench, "nginx16": Nginx16}


def record(name, setting, into, args):
    """Records one setting of one workload into INTO.slt."""
    workload, bed = WORKLOADS[name](), Bed(args.folder)
    separate = setting in ("groups", "weight", "max")
    server, batch = ("server", "batch") if separate else ("all", "all")
    try:
        # What else the machine does shall not count: some 25 to 1 on each CPU. A group's weight on a CPU is its part of the group's
        # work there, so all of them have the same; with most of it at the client, on its CPU, the others' CPU had nearly none.
        with open(os.path.join(bed.group(""), "cpu.shares"), "w") as file:
            file.write("65536")
        for inner in {"client", "recorder", server, batch}:
            with open(os.path.join(bed.group(inner), "cpu.shares"), "w") as file:
                file.write("16384")
        # Waking a halted virtual CPU costs what the host makes of it, some 10 to 50 us, now on one side of a pair and
        # now on the other. So no CPU halts: something of least weight always runs. It stays in user mode: after `yes`,
        # which lives in system calls, the thread that comes next needs 9 us more of CPU time here than after a loop.
        shutil.copy("/bin/sh", f"{bed.work}/filler")
        with open(os.path.join(bed.group(FILLER), "cpu.shares"), "w") as file:
            file.write("2")
        with open(os.path.join(bed.group(FILLER), "cpu.idle"), "w") as file:
            file.write("1")
        for cpu in (SUT, SIDE):
            bed.start([f"{bed.work}/filler", "-c", "while :; do :; done"], FILLER, cpu)
        if setting == "weight":
            with open(os.path.join(bed.group(batch), "cpu.shares"), "w") as file:
                file.write("4096")
        if setting == "max":
            with open(os.path.join(bed.group(batch), "cpu.cfs_period_us"), "w") as file:
                file.write("100000")
            with open(os.path.join(bed.group(batch), "cpu.cfs_quota_us"), "w") as file:
                file.write("20000")
        # With RT_GROUP_SCHED a group has no real-time runtime of its own accord; it goes with the group. No less than the
        # 95 % that fair tasks leave anyway: 85 % throttled the server, which the prediction knows nothing of.
        if setting == "fifo" and os.path.exists(f"{GROUPS}/cpu.rt_runtime_us"):
            for group, us in (("", 940_000), (server, 940_000)):
                with open(os.path.join(bed.group(group), "cpu.rt_runtime_us"), "w") as file:
                    file.write(str(us))
        of_server = ["chrt", "-f", "1"] if setting == "fifo" else []
        of_batch = {"batch": ["chrt", "-b", "0"], "nice": ["nice", "-n", "10"], "idle": ["chrt", "-i", "0"]}.get(setting, [])
        # Until the recorder runs it may take 15 s: kernel threads wait behind groups of this weight. A load that ended
        # before the recording did is what "the load did not run" was. `end` stops it.
        long = args.seconds + 90
        workload.serve(bed, server, of_server, 0)
        second = workload.serve(bed, server, of_server, 1) if setting == "second" else []
        workload.work(bed, batch, of_batch, long + 2, SIDE if setting == "affinity" else SUT)
        workload.load(bed, long, 0)
        if setting == "second":
            second += workload.load(bed, long, 1)
        time.sleep(0.5)
        # The recorder too goes before what else the machine does.
        recorder = os.path.join(bed.group("recorder"), "tasks")
        subprocess.run(["sh", "-c", f"echo 0 > {recorder}; exec \"$@\"", "sh", args.schedlab, "record", "-o", f"{into}.slt", "--all", "--for", f"{args.seconds}s", "--recorder-cpu", str(SIDE),
                        "--messages", "on" if args.messages else "auto",
                        "--note", f"{name}, {setting}"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        ended = [run.args[0] for run in bed.running if run.poll() is not None]
        if ended:
            sys.exit(f"{name}, {setting}: {', '.join(map(str, ended))} ended before the recording did")
        with open(f"{into}.json", "w") as out:
            json.dump({"second": second}, out)
    finally:
        bed.end()


def names_in(file, args):
    """The names of the tasks of a recording that ran."""
    out = subprocess.run([args.schedlab, "show", file, "--tasks", "--json"], capture_output=True, text=True, check=True)
    found = set()

    def walk(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in ("task", "name", "comm") and isinstance(inner, str):
                    found.add(inner)
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)
    walk(json.loads(out.stdout))
    return found


def stem(name, change, side, number, args):
    return f"{args.folder}/{name}-{change}-{side}{number}"


def variant(name, change, number, args):
    """The change as an argument of --variant."""
    _, text = CHANGES[change]
    if text is None:
        return None
    workload, before = WORKLOADS[name], stem(name, change, "a", number, args)
    there = names_in(f"{before}.slt", args)

    def clauses(names, setting):
        known = [n for n in names if any(t == n or t.startswith(n + ":") or t.split(" ")[0] == n for t in there)] or names[:1]
        return " ; ".join(f"{n} {setting}" for n in known)
    if "{second}" in text:
        with open(f"{before}.json") as side:
            return "b: " + clauses([str(pid) for pid in json.load(side)["second"]], "off")
    for key, names in (("{batch}", workload.batch), ("{server}", workload.server)):
        if text.startswith(key):
            return "b: " + clauses(names, text[len(key) + 1:])
    return "b: " + text


def total(subjects, names, metric, what):
    """The sum over all tasks of a party that are in the table."""
    values = [value for name in names if (value := cell(subjects, name, metric, what)) is not None]
    return sum(values) if values else None


def cell(subjects, name, metric, what):
    for subject in subjects:
        if subject["name"] == name:
            for one in subject["cells"]:
                if one["metric"] == metric:
                    return one[what]
    return None


def one_round(name, change, number, args):
    came = f"{stem(name, change, 'b', number, args)}.slt"
    command = [args.schedlab, "compare", f"{stem(name, change, 'a', number, args)}.slt", "--json", "--seeds", str(args.seeds)]
    text = variant(name, change, number, args)
    command += ["--variant", text, "--check", f"b={came}"] if text else ["--check", f"as recorded={came}"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode not in (0, 3):
        return {"workload": name, "change": change, "failed": run.stderr.strip()}
    study = json.loads(run.stdout)
    subjects, own = study["predictions"][0]["subjects"], study["self_replay"]["subjects"]
    workload = WORKLOADS[name]
    found = {"workload": name, "change": change, "trusted": study["self_replay"]["trusted"]}
    for key, who, metric in (("throughput", workload.server, "throughput"), ("client", [workload.client], "throughput"),
                             ("share", workload.server, "share"), ("p99", workload.server, "response p99"),
                             ("latency", workload.server, "latency p99"), ("batch", workload.batch, "share")):
        recorded, predicted = (total(subjects, who, metric, what) for what in ("recorded", "simulated"))
        before = total(own, who, metric, "recorded")
        found[key] = {"before": before, "recorded": recorded, "predicted": predicted}
    # What an activation costs the server: where that differs between A and B, no scheduling explains the difference.
    each = {what: found["share"][what] * 1e9 / found["throughput"][what] for what in ("before", "recorded", "predicted")
            if found["share"][what] and found["throughput"][what]}
    found["each"] = {what: each.get(what) for what in ("before", "recorded", "predicted")}
    if min(found["share"]["before"] or 0, found["share"]["recorded"] or 0) < 0.01:
        return {"workload": name, "change": change, "failed": "the load did not run: record it again"}
    return found


FIGURES = ("throughput", "client", "share", "p99", "latency", "batch", "each")


def pair(name, change, args):
    """All rounds of a pair: medians, and the error of the one median against the other."""
    files = glob.glob(f"{stem(name, change, 'b', '[0-9]*', args)}.slt")
    numbers = sorted(int(file[:-len(".slt")].rsplit("-b", 1)[1]) for file in files)
    rounds = [one_round(name, change, number, args) for number in numbers]
    failed = [f"round {number}: {one['failed']}" for number, one in zip(numbers, rounds) if "failed" in one]
    if failed:
        return {"workload": name, "change": change, "failed": "; ".join(failed)}
    found = {"workload": name, "change": change, "rounds": rounds, "trusted": all(one["trusted"] for one in rounds)}
    for key in FIGURES:
        of = {}
        for what in ("before", "recorded", "predicted"):
            values = [one[key][what] for one in rounds if one[key][what] is not None]
            of[what] = statistics.median(values) if len(values) == len(rounds) else None
        if of["recorded"] and of["predicted"] is not None:
            of["error"] = of["predicted"] / of["recorded"] - 1
        found[key] = of
    return found


def shown(value, key):
    if value is None:
        return "-"
    if key in ("p99", "latency", "each"):
        return f"{value / 1e6:.2f}ms" if value >= 1e6 else f"{value / 1e3:.0f}us"
    return f"{value * 100:.1f}%" if key in ("share", "batch") else f"{value:.0f}"


def table(args):
    rows = []
    print(f"{'workload':9} {'change':9} " + " ".join(f"{what:>30}" for what in
          ("server done/s", "server share", "batch share", "response p99", "latency p99", "server CPU each")))
    print(" " * 20 + "(before: recorded / predicted, error)")
    for name in args.workloads:
        for change in CHANGES:
            if not glob.glob(f"{stem(name, change, 'b', '[0-9]*', args)}.slt"):
                continue
            found = pair(name, change, args)
            rows.append(found)
            if "failed" in found:
                print(f"{name:9} {change:9} FAILED: {found['failed']}")
                continue
            cells = []
            for key in ("throughput", "share", "batch", "p99", "latency", "each"):
                of = found[key]
                error = f"{of['error'] * 100:+.0f}%" if "error" in of else ""
                cells.append(f"{shown(of['before'], key)}: {shown(of['recorded'], key)}/{shown(of['predicted'], key)} {error:>5}")
            print(f"{name:9} {change:9} " + " ".join(f"{text:>30}" for text in cells) + ("" if found["trusted"] else "  untrusted"),
                  flush=True)
    failed = False
    for key, aim in (("throughput", 0.10), ("client", 0.10), ("share", None), ("p99", 0.25), ("latency", None), ("each", None)):
        of = lambda changes: [abs(row[key]["error"]) for row in rows if key in row and "error" in row[key] and changes(row["change"])]
        errors, floor = of(lambda c: c != "same"), of(lambda c: c == "same")
        if not errors:
            continue
        median = statistics.median(errors)
        text = f"median error of {key}: {median * 100:.1f} % over {len(errors)} pairs, largest {max(errors) * 100:.0f} %"
        text += f"; of the same setting again: {statistics.median(floor) * 100:.1f} %" if floor else ""
        print(text + (f" (aimed at: {aim * 100:.0f} %)" if aim else ""))
        failed |= key in ("throughput", "p99") and aim is not None and median > aim
    if args.json:
        with open(args.json, "w") as out:
            json.dump(rows, out, indent=1)
    return 1 if failed or any("failed" in row for row in rows) else 0


def toml(args):
    """Writes the recordings as a file of pairs."""
    with open(f"{args.folder}/pairs.toml", "w") as out:
        out.write('about = "experiments/pairs.py"\n')
        for name in args.workloads:
            classes = [*WORKLOADS[name].server, *WORKLOADS[name].batch, WORKLOADS[name].client]
            for change in CHANGES:
                for file in sorted(glob.glob(f"{stem(name, change, 'b', '[0-9]*', args)}.slt")):
                    number = int(file[:-len(".slt")].rsplit("-b", 1)[1])
                    text = (variant(name, change, number, args) or "b: ").removeprefix("b: ")
                    base = os.path.basename(stem(name, change, "a", number, args))
                    out.write(f'\n[[pair]]\nname = "{name} {change} {number}"\nbase = "{base}.slt"\nchange = {json.dumps(text)}\n'
                              f'came = "{os.path.basename(file)}"\nclasses = {json.dumps(classes)}\n')
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "table", "toml"])
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], default=[])
    parser.add_argument("--folder", default=f"{ROOT}/target/pairs")
    parser.add_argument("--schedlab", default=f"{ROOT}/target/debug/schedlab")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1, help="number of the first round, where some are there already")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(CHANGES), default=list(CHANGES))
    parser.add_argument("--json")
    parser.add_argument("--messages", action="store_true", help="record what the tasks exchange, too")
    args = parser.parse_args()
    args.workloads = args.workloads or list(WORKLOADS)
    os.makedirs(args.folder, exist_ok=True)
    if args.what != "record":
        return table(args) if args.what == "table" else toml(args)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for number in range(args.first, args.first + args.rounds):
        for name in args.workloads:
            for change in args.only:
                # One right after the other: what else the machine does changes slowly.
                for side, setting in (("a", CHANGES[change][0]), ("b", CAME.get(change, change))):
                    record(name, setting, stem(name, change, side, number, args), args)
                print(f"{name} {change}, round {number}: recorded", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
