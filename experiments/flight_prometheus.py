#!/usr/bin/env python3
"""A real Prometheus that scrapes the flight recorder: the rules of contrib/prometheus and every panel of contrib/grafana's dashboard, asked by
`promtool` under a load that is known.

usage: experiments/flight_prometheus.py [--schedlab target/release/schedlab] [--seconds 60] [--picture FILE.png]

Needs root, Debian's packages prometheus (with promtool) and, for the picture, chromium. A victim sleeps a millisecond again and again on CPU 1,
a real-time hog takes that CPU from it for 60 ms every two seconds, and a control group whose limit is a tenth of a CPU has a hog. One
Prometheus takes the classic histograms, another one, with its feature switch, the native ones. Exit code 1: a rule is not valid, an alert that
must fire does not, a panel has no data, both histograms disagree, or the number of waits that Prometheus has is not the recorder's.
"""
import argparse, json, os, re, shutil, signal, subprocess, sys, tempfile, time, urllib.parse, urllib.request

from flight_hour import RULES, VICTIM

HOG = """
import ctypes, os, time
ctypes.CDLL(None).prctl(15, b"hog")
os.sched_setaffinity(0, {1}); os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
while True:
    begin = time.monotonic()
    while time.monotonic() - begin < 0.06: pass
    time.sleep(2)
"""
V1 = os.path.isdir("/sys/fs/cgroup/cpu")
GROUP = f"/sys/fs/cgroup/{'cpu/' if V1 else ''}schedlab-prometheus"
LIMIT = {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "10000"} if V1 else {"cpu.max": "10000 100000"}
P99 = {"classic": 'histogram_quantile(0.99, sum by (le) (rate(schedlab_wait_seconds_bucket{command="victim"}[20s])))',
       "native": 'histogram_quantile(0.99, sum(rate(schedlab_wait_seconds{command="victim"}[20s])))'}


def config(work, port):
    """contrib's files, with this run's ports and times: five minutes are five scrapes here."""
    text = open("contrib/prometheus/scrape.yml").read().replace("127.0.0.1:9920", f"127.0.0.1:{port}")
    rules = open("contrib/prometheus/schedlab.rules.yml").read()
    rules = re.sub(r"\b(5|10)m\b", "20s", rules).replace("for: 20s", "for: 2s").replace("unit", "command")
    with open(f"{work}/rules.yml", "w") as file:
        file.write(rules)
    with open(f"{work}/prometheus.yml", "w") as file:
        file.write("global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [rules.yml]\n" + text)


def ask(port, query):
    out = subprocess.run(["promtool", "query", "instant", "--format=json", f"http://127.0.0.1:{port}", query], capture_output=True, text=True)
    if out.returncode or not out.stdout.strip():
        raise SystemExit(f"{query}: {out.stderr}")
    return json.loads(out.stdout)


def panels():
    """Title and query of each target, with the dashboard's variables as a user leaves them."""
    dashboard = json.load(open("contrib/grafana/schedlab.json"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "20s").replace("$instance", ".*").replace("$unit", ".*")
            yield panel["title"], re.sub(r"\bunit\b", "command", query)


def shown(result):
    """The largest values, with their labels."""
    values = sorted(((float(one["value"][1]), one["metric"]) for one in result), key=lambda pair: -pair[0] if pair[0] == pair[0] else 0)
    words = [f"{'/'.join(metric[key] for key in ('command', 'culprit', 'rule', 'le') if key in metric) or 'all'} {value:.4g}" for value, metric in values[:3]]
    return f"{len(values)} series: {', '.join(words)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedlab", default="target/release/schedlab")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--port", type=int, default=9922)
    parser.add_argument("--picture")
    options = parser.parse_args()
    work, bad, others = tempfile.mkdtemp(), [], []
    port, own = options.port, options.port + 1
    config(work, port)
    for check in (["check", "rules", "contrib/prometheus/schedlab.rules.yml"], ["check", "config", f"{work}/prometheus.yml"]):
        done = subprocess.run(["promtool", *check], capture_output=True, text=True)
        print(f"promtool {' '.join(check[:2])}: {'SUCCESS' if done.returncode == 0 else done.stdout + done.stderr}")
        bad += ["promtool"] if done.returncode else []
    os.mkdir(f"{work}/out")
    with open(f"{work}/flight.toml", "w") as file:
        file.write(RULES.format(work=work, port=port))

    def start(*command, **more):
        more = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True, **more}
        others.append(subprocess.Popen(command, **more))
        return others[-1]

    try:
        os.mkdir(GROUP)
        for name, value in LIMIT.items():
            with open(f"{GROUP}/{name}", "w") as file:
                file.write(value)
        limited = start("sh", "-c", "while :; do :; done")
        with open(f"{GROUP}/cgroup.procs", "w") as file:
            file.write(str(limited.pid))
        start(sys.executable, "-c", VICTIM)
        flight = start(options.schedlab, "flight", f"{work}/flight.toml")
        start(sys.executable, "-c", HOG)
        servers = [start("prometheus", f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/data{at}",
                         f"--web.listen-address=127.0.0.1:{at}", *more) for at, more in ((own, []), (own + 1, ["--enable-feature=native-histograms"]))]
        time.sleep(options.seconds)
        for dead in (one for one in (flight, *servers) if one.poll() is not None):
            raise SystemExit(f"{dead.args[0]} ended")
        for title, query in panels():
            result = ask(own, query)
            print(f"panel {title!r}: {shown(result)}")
            bad += [] if result else [title]
        p99 = {kind: float(ask(own + at, P99[kind])[0]["value"][1]) for at, kind in enumerate(P99)}
        print(f"p99 of the victim's waits: {', '.join(f'{value * 1e3:.3f} ms by {kind} buckets' for kind, value in p99.items())}")
        # Buckets of the classic one are a factor of two apart.
        bad += [] if 0.5 < p99["native"] / p99["classic"] < 2 else ["native histogram"]
        alerts = json.load(urllib.request.urlopen(f"http://127.0.0.1:{own}/api/v1/alerts"))["data"]["alerts"]
        firing = sorted({one["labels"]["alertname"] for one in alerts if one["state"] == "firing"})
        print(f"alerts that fire: {', '.join(firing)}")
        bad += [name for name in ("SchedlabIncident", "SchedlabThrottled") if name not in firing]
        if options.picture:
            graph = urllib.parse.quote('histogram_quantile(0.99, sum by (command, le) (rate(schedlab_wait_seconds_bucket{command=~"victim|hog|python3|prometheus"}[20s])))')
            page = f"http://127.0.0.1:{own}/graph?g0.expr={graph}&g0.tab=0&g0.range_input=1m"
            subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,900", "--virtual-time-budget=8000",
                            f"--screenshot={os.path.abspath(options.picture)}", page], stderr=subprocess.DEVNULL)
        flight.send_signal(signal.SIGSTOP)
        text = urllib.request.urlopen(f"http://127.0.0.1:{own}/api/v1/query?query=" + urllib.parse.quote('schedlab_wait_seconds_count{command="victim"}'))
        count = json.load(text)["data"]["result"]
        flight.send_signal(signal.SIGCONT)
        served = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        served = next((float(line.split()[-1]) for line in served.splitlines() if line.startswith('schedlab_wait_seconds_count{command="victim"}')), 0)
        stored = float(count[0]["value"][1]) if count else 0
        # The recorder counts on while this is asked.
        same = 0 < stored <= served <= stored + 5000
        print(f"waits of the victim: Prometheus has {stored:.0f}, the recorder {served:.0f} a moment later")
        bad += [] if same else ["count"]
    finally:
        for other in others:
            os.killpg(other.pid, signal.SIGKILL)
            other.wait()
        if os.path.isdir(GROUP):
            time.sleep(0.5)
            os.rmdir(GROUP)
        shutil.rmtree(work, ignore_errors=True)
    print("all as it should be" if not bad else f"not as it should be: {', '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
