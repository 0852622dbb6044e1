#!/usr/bin/env python3
"""What `schedlab confirm` predicts beside what comes, for two workloads and five settings: one command, some two minutes.

    experiments/confirm.py [redis|hogs|pipe|all] [rounds]      (root; redis-server, sysbench, perf; builds what it needs, unless
                                                            SCHEDLAB and REDLOAD name both programs; CPU=1 is managed, SIDE=0
                                                            has the client and the recorder)

redis: Redis (our open-loop client, 4000 requests a second) and sysbench on one CPU: default, sysbench SCHED_IDLE, sysbench nice
10, and under `schedlab run`: rr with 1 ms, shinjuku with 200 us.
hogs:  two that never sleep: default, one with nice 5, rr with 20 ms, shinjuku with 5 ms.
pipe:  `perf bench sched pipe`: default, SCHED_BATCH, fifo-per-cpu, rr with 5 ms.

The machine should have nothing else to do: what others take of the CPU is in the live rounds, and `confirm` says when its base
recording is not to be trusted. Exit code: 0, or 3 when a workload was not trusted.
"""
import os, socket, subprocess, sys, tempfile, threading, time

CPU, SIDE, PORT, RATE = os.environ.get("CPU", "1"), os.environ.get("SIDE", "0"), "7793", 4000
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAB = os.environ.get("SCHEDLAB", os.path.join(ROOT, "target/release/schedlab"))
LOAD = os.environ.get("REDLOAD", os.path.join(ROOT, "target/release/examples/redload"))
QUIET = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
WORKLOADS = {
    # It says when it begins: the client connects anew then.
    "redis": (["idle: sysbench policy=idle", "nice: sysbench nice=10"], ["rr:slice_ns=1ms", "shinjuku:quantum=200us"],
              # The one before may still hold the port: it would end at once then.
              f"echo >> $BEGUN; until redis-server --port {PORT} --save '' --appendonly no; do sleep 0.01; done & sysbench cpu --time=0 run & wait"),
    "hogs": (["nice: sysbench nice=5"], ["rr:slice_ns=20ms", "shinjuku:quantum=5ms"], "yes & sysbench cpu --time=0 run & wait"),
    "pipe": (["batch: sched-pipe policy=batch"], ["fifo-per-cpu", "rr:slice_ns=5ms"], "exec perf bench sched pipe -l 100000000"),
}


def build():
    if "SCHEDLAB" in os.environ:
        return
    subprocess.run(["cargo", "build", "-q", "--release", "-p", "schedlab-cli"], cwd=ROOT, check=True)
    subprocess.run(["cargo", "build", "-q", "--release", "-p", "schedlab-measure", "--example", "redload"], cwd=ROOT, check=True)


def answers():
    try:
        socket.create_connection(("127.0.0.1", int(PORT)), 0.2).close()
        return True
    except OSError:
        return False


class Client(threading.Thread):
    """Sends to whichever Redis has begun last, until the end."""

    def __init__(self, begun):
        super().__init__(daemon=True)
        self.begun, self.over, self.load = begun, False, None

    def stop(self):
        if self.load:
            self.load.kill()
            self.load.wait()
        self.load = None

    def run(self):
        # Only this thread: beside the workload it would get its turn too late.
        os.sched_setaffinity(0, {int(SIDE)})
        seen = 0
        while not self.over:
            size = os.path.getsize(self.begun)
            # A client may also end by itself, when its server was still on its way.
            if size != seen or self.load and self.load.poll() is not None:
                self.stop()
                while not answers() and not self.over:
                    time.sleep(0.01)
                # A program that answers has said before that it begins.
                seen = os.path.getsize(self.begun)
                self.load = subprocess.Popen(["chrt", "--fifo", "1", "taskset", "-c", SIDE, LOAD, f"127.0.0.1:{PORT}", f"open:{RATE}",
                                              "8", "0ms", "60s", "7", "PING"], **QUIET)
            time.sleep(0.02)
        self.stop()


def confirm(name, rounds):
    variants, schedulers, shell = WORKLOADS[name]
    command = [LAB, "confirm", "--cpus", CPU, "--rounds", str(rounds), "--for", "1s"]
    for flag, values in (("--variant", variants), ("--scheduler", schedulers)):
        for value in values:
            command += [flag, value]
    with tempfile.NamedTemporaryFile() as begun:
        client = Client(begun.name)
        if name == "redis":
            client.start()
        code = subprocess.run(command + ["--", "sh", "-c", shell], env=dict(os.environ, BEGUN=begun.name)).returncode
        client.over = True
        if name == "redis":
            client.join()
    if code not in (0, 3):
        sys.exit(code)
    return code


def main():
    which = sys.argv[1] if len(sys.argv) > 1 else "all"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    if which not in (*WORKLOADS, "all"):
        sys.exit(f"{which}: there are {', '.join(WORKLOADS)} and all")
    build()
    codes = []
    for name in ("redis", "hogs", "pipe") if which == "all" else (which,):
        codes.append(confirm(name, rounds))
        print(flush=True)
    sys.exit(max(codes))


main()
