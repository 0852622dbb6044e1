#!/usr/bin/env python3
"""Would a replay be nearer if it knew two costs of an activation, with warm and with cold caches?

usage: experiments/two_costs.py [--folder target/pairs] [--schedlab target/release/schedlab] [--cold-us 100] [--json FILE]

Takes the recordings of `experiments/pairs.py record` (A before a change, B after it). A stretch of the server on a CPU is cold when other tasks have
had that CPU for --cold-us or more since the server's thread last had it, or when it comes from another CPU. From A alone the CPU time of an activation is
fitted as w + c * (its cold stretches), by least squares over all but its longest hundredth. Two predictions of the mean activation of B follow: that of A
(one cost, what a replay takes), and that of A moved by c times the difference of cold stretches (two costs). The second is told how many cold
stretches B really had, which no replay knows: it is the best that two costs can do. Prints both errors for each change (medians over the rounds) and
over all recordings.
"""
import argparse, csv, glob, json, os, re, statistics, subprocess, sys, tempfile

SERVERS = {"redis": "redis-server", "nginx": "nginx", "postgres": "postgres"}
AWAKE = ("runnable", "preempted")


def activations(schedlab, file, server, cold):
    """(CPU time, cold stretches) of every activation of the server that ended in a block, without the first ones."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([schedlab, "export", file, "--csv", folder], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        with open(os.path.join(folder, "events.csv")) as events:
            return list(activations_of(csv.DictReader(events), server, cold))[5:]


def activations_of(events, server, cold):
    running, left, open_ = {}, {}, {}
    for event in events:
        if event["event"] != "switch":
            continue
        at, cpu, before, after = int(event["at_ns"]), event["cpu"], event["task"], event["next_task"]
        since = running.get(cpu, (None, at))
        if since[0] == before:
            ran = at - since[1]
            for thread, place in left.items():
                if place[0] == cpu and thread != before and not event["comm"].startswith("swapper"):
                    place[1] += ran
            if event["comm"] == server:
                activation = open_.setdefault(before, [0, 0])
                activation[0] += ran
                left[before] = [cpu, 0]
                if event["state"] not in AWAKE:
                    yield tuple(open_.pop(before))
        running[cpu] = (after, at)
        if event["next_comm"] == server:
            place = left.pop(after, None)
            open_.setdefault(after, [0, 0])[1] += place is None or place[0] != cpu or place[1] >= cold


def fit(all_):
    """Mean CPU time, mean number of cold stretches, and what one of these costs."""
    most = sorted(cost for cost, _ in all_)[len(all_) * 99 // 100]
    kept = [(cost, cold) for cost, cold in all_ if cost <= most]
    mean, colds = (sum(column) / len(kept) for column in zip(*kept))
    spread = sum((cold - colds) ** 2 for _, cold in kept)
    together = sum((cold - colds) * (cost - mean) for cost, cold in kept)
    return mean, colds, together / spread if spread else 0.0


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--folder", default="target/pairs")
    args.add_argument("--schedlab", default="target/release/schedlab")
    args.add_argument("--cold-us", type=float, default=100.0)
    args.add_argument("--json", help="write every pair here")
    args = args.parse_args()
    found = {}
    for file in sorted(glob.glob(os.path.join(args.folder, "*-a*.slt"))):
        name = re.fullmatch(r"(\w+)-(\w+)-a(\d*)\.slt", os.path.basename(file))
        came = re.sub(r"-a(\d*)\.slt$", r"-b\1.slt", file)
        if name and name[1] in SERVERS and os.path.exists(came):
            found.setdefault((name[1], name[2]), []).append((file, came))
    if not found:
        sys.exit(f"{args.folder} has no pairs: `experiments/pairs.py record redis --folder {args.folder}` makes some")
    rows = []
    print("| pair | rounds | CPU time of an activation A, B | cold stretches A, B | a cold one costs | error with one cost | with two |")
    print("|---|---|---|---|---|---|---|")
    for (workload, change), files in found.items():
        own = []
        for a, b in files:
            (was, colds, cost), (came, after, _) = (
                fit(activations(args.schedlab, file, SERVERS[workload], args.cold_us * 1000)) for file in (a, b))
            own.append({"pair": f"{workload} {change}", "a": was, "b": came, "cold_a": colds, "cold_b": after, "cost": cost,
                        "one": was / came - 1, "two": (was + cost * (after - colds)) / came - 1})
        of = {key: statistics.median(row[key] for row in own) for key in own[0] if key != "pair"}
        print(f"| {workload} {change} | {len(own)} | {of['a'] / 1e3:.1f}, {of['b'] / 1e3:.1f} us | {of['cold_a']:.2f}, "
              f"{of['cold_b']:.2f} | {of['cost'] / 1e3:.1f} us | {of['one'] * 100:+.1f} % | {of['two'] * 100:+.1f} % |",
              flush=True)
        rows += own
    one, two = (statistics.median(abs(row[key]) for row in rows) for key in ("one", "two"))
    print(f"\nMedian error of an activation's CPU time over {len(rows)} pairs of recordings: {one * 100:.1f} % with one cost, "
          f"{two * 100:.1f} % with two.")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
