#!/usr/bin/env python3
"""Live containers by runc, named as Docker, Podman and Kubernetes name theirs: what `schedlab show` and `schedlab watch` call them with
`--by container` and `--by pod`.

usage: experiments/containers.py [--schedlab target/release/schedlab] [--seconds 3]

Needs root and Debian's packages runc and busybox-static. Each container has a hog; a recording of the machine has to find all of them by their
names, with CPU time each. The kubelet's folder of logs, which has the pod's name, and the file with labels are made up in a mount namespace of the recorder. (The runtime itself is real; that the paths are those of the three managers is what their own documents say.) Exit
code 1: one was not found.
"""
import argparse, json, os, shutil, subprocess, sys, tempfile

POD = "12345678-1234-1234-1234-123456789abc"
CONTAINERS = {
    "docker": (f"/docker/{'a1' * 32}", "container", f"docker {'a1' * 6}"),
    "podman": (f"/libpod_parent/libpod-{'b2' * 32}", "container", f"podman {'b2' * 6}"),
    "kubernetes": (f"/kubepods/burstable/pod{POD}/{'c3' * 32}", "pod", "shop/checkout-7d9f4b (burstable)"),
}
LABELS = json.dumps({"uid": POD, "namespace": "shop", "name": "checkout-7d9f4b", "labels": {"app": "checkout"}})
# The recorder sees what a node's kubelet keeps, and what contrib/k8s/labels.yaml writes.
NODE = ["unshare", "--mount", "sh", "-c", f"""mount -t tmpfs none /var/log && mkdir -p /var/log/pods/shop_checkout-7d9f4b_{POD} &&
    mount -t tmpfs none /run && mkdir /run/schedlab-pods && echo '{LABELS}' > /run/schedlab-pods/pods.jsonl && exec "$@" """, "sh"]


def run(*command):
    # Not to a pipe: what `runc run -d` leaves behind would hold it open.
    with tempfile.TemporaryFile() as out:
        code = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        out.seek(0)
        text = out.read().decode()
    if code:
        sys.exit(f"{' '.join(command)}: {text}")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedlab", default="target/release/schedlab")
    parser.add_argument("--seconds", type=int, default=3)
    options = parser.parse_args()
    program, work, started, missed = os.path.abspath(options.schedlab), tempfile.mkdtemp(), [], []
    try:
        root = f"{work}/root"
        for folder in ("bin", "proc", "sys", "dev"):
            os.makedirs(f"{root}/{folder}")
        shutil.copy("/bin/busybox", f"{root}/bin/busybox")
        os.symlink("busybox", f"{root}/bin/sh")
        for name, (path, _, _) in CONTAINERS.items():
            bundle = f"{work}/{name}"
            os.mkdir(bundle)
            run("runc", "spec", "--bundle", bundle)
            with open(f"{bundle}/config.json") as file:
                spec = json.load(file)
            spec["process"].update(terminal=False, rlimits=[], args=["sh", "-c", "while :; do :; done"])
            spec["root"] = {"path": root, "readonly": True}
            spec["linux"]["cgroupsPath"] = path
            with open(f"{bundle}/config.json", "w") as file:
                json.dump(spec, file)
            run("runc", "run", "--detach", "--bundle", bundle, f"schedlab-{name}")
            started.append(f"schedlab-{name}")
        recording = f"{work}/r.slt"
        run(*NODE, program, "record", "--all", "--for", f"{options.seconds}s", "-o", recording)
        for name, (_, by, label) in CONTAINERS.items():
            table = json.loads(subprocess.check_output([program, "show", recording, "--by", by, "--json"]))
            tasks = next(one for one in table["analyses"] if one["name"] == "tasks")["tables"]["tasks"]
            line = next((line for line in tasks if line["task"] == label), None)
            found = f"{100 * line['share']:.1f} % of a CPU" if line else "not found"
            print(f"{name}: show --by {by} calls it {label!r}: {found}")
            missed += [] if line and line["share"] > 0.01 else [name]
        for by in ("container", "pod"):
            lines = subprocess.check_output([*NODE, program, "watch", "--json", "--by", by, "--for", f"{options.seconds}s"])
            rows = {row["task"]: row["cpu_ns"] / 1e9 for row in json.loads(lines.splitlines()[-1])["tasks"]}
            for name, label in ((name, label) for name, (_, other, label) in CONTAINERS.items() if other == by):
                print(f"{name}: watch --by {by} calls it {label!r}: {rows.get(label, 0):.2f} s of CPU time")
                missed += [] if rows.get(label, 0) > 0.01 else [name]
        for pod in ("pod:shop/checkout-*", "pod:app=checkout"):
            served = json.loads(subprocess.check_output([program, "show", recording, "--serve", pod, "--by", "pod", "--tasks", "--json"]))
            rows = next(one for one in served["analyses"] if one["name"] == "tasks")["tables"]["tasks"]
            print(f"show --serve '{pod}' --by pod: first is {rows[0]['task']!r}")
            missed += [] if rows[0]["task"] == CONTAINERS["kubernetes"][2] else ["serve"]
    finally:
        for name in started:
            subprocess.call(["runc", "delete", "--force", name])
        shutil.rmtree(work, ignore_errors=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
