"""Measure a sweep of many settings on threads and on Ray: wall time, CPU time, efficiency, memory.

    python python/examples/many_settings.py                     # 5,000 settings, 5 seeds each, of the shipped Redis recording
    python python/examples/many_settings.py --settings 500 --rounds 3 --backends serial threads ray
    python python/examples/many_settings.py --settings 16000 --seeds 1 --backends serial ray --nodes 2       # 2,000 tasks on two nodes

Each backend gets the same settings, and the rows must be the same to the byte. Efficiency is the CPU time of the serial run
over the CPU time that this machine could have given while the backend ran (wall time times CPUs); it is shown where
`serial` is among the backends. `--nodes 2` shares the CPUs of this machine out among two nodes of Ray, each with a scheduler and a store of its own, as
two machines have. Memory is the largest proportional set size (PSS) of this process and all its children, read
every half second, less what they held when the sweep began.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import schedlab as sl
from schedlab._space import grid

RECORDING = Path(__file__).resolve().parents[2] / "recordings/redis-other-other-closed8.slt"
METRICS = ["redis-server response p99", "redis-server share", "sysbench share"]
SPACE = {
    "sysbench policy": ["other", "batch"],
    "redis-server nice": [0, -5, -10, -15, -20],
    "sysbench nice": range(0, 20),
    "base_slice_ns": [f"{round(0.3e6 * 100 ** (step / 79))}ns" for step in range(80)],
}
EVERY = 16_000


def settings(count: int) -> list[str]:
    """`count` settings, evenly chosen among those of SPACE."""
    every = [setting for _, setting in grid(SPACE)]
    return [every[place * len(every) // count] for place in range(count)]


def family() -> list[int]:
    """This process and all its children."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                pass
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def memory() -> int:
    """PSS of the family in bytes."""
    total = 0
    for pid in family():
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024
        except (OSError, StopIteration):
            pass
    return total


def processor() -> float:
    """CPU time of the family and of its ended children, in seconds."""
    tick, total = os.sysconf("SC_CLK_TCK"), 0
    for pid in family():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])
        except OSError:
            pass
    return total / tick


class Peak:
    """The largest memory while it is entered."""

    def __enter__(self) -> Peak:
        self.first = self.largest = memory()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self) -> None:
        while not self.ended.wait(0.5):
            self.largest = max(self.largest, memory())

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()


def nodes(count: int, processors: int) -> None:
    """Start nodes of Ray on this machine, as `ray start` does on each of several."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    own = {"num_cpus": processors // count, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**own, "include_dashboard": False})
    for _ in range(count - 1):
        cluster.add_node(**own)
    ray.init(address=cluster.address, log_to_driver=False)
    cluster.wait_for_nodes()


def one(backend: str, wanted: list[str], seeds: int, metrics: Sequence[str]) -> dict[str, float | str]:
    with tempfile.TemporaryDirectory() as folder, Peak() as peak:
        wall, used = time.monotonic(), processor()
        table = sl.sweep(RECORDING, settings=wanted, metrics=metrics, seeds=seeds, backend=backend, out=Path(folder, "parts"))
        wall, used = time.monotonic() - wall, processor() - used
        digest = hashlib.sha256()
        for part in sorted(Path(folder, "parts").glob("*.parquet")):
            digest.update(part.read_bytes())
        rows = len(table)
    return {"wall": wall, "cpu": used, "memory": (peak.largest - peak.first) / 2**20, "rows": rows, "hash": digest.hexdigest()[:16]}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--settings", type=int, default=5000, help=f"1 to {EVERY} (default: 5000)")
    arguments.add_argument("--seeds", type=int, default=5, help="runs of each setting (default: 5)")
    arguments.add_argument("--rounds", type=int, default=1, help="times that the backends take turns (default: 1)")
    arguments.add_argument("--backends", nargs="+", default=["threads", "ray"], choices=["serial", "threads", "ray"])
    arguments.add_argument("--nodes", type=int, default=1, help="nodes of Ray (default: 1)")
    arguments.add_argument("--all", action="store_true", help="keep every measurement (some 600 of a setting), not three")
    given = arguments.parse_args()
    if not 1 <= given.settings <= EVERY:
        arguments.error(f"--settings: 1 to {EVERY}")
    wanted, processors = settings(given.settings), len(os.sched_getaffinity(0))
    if not 1 <= given.nodes <= processors:
        arguments.error(f"--nodes: 1 to {processors}, a CPU each")
    if given.nodes > 1:
        nodes(given.nodes, processors)
    if "ray" in given.backends:
        # Ray's own start is no part of a sweep.
        sl.sweep(RECORDING, settings=wanted[:1], seeds=1, duration="10ms", backend="ray")
    print(f"{given.settings} settings x {given.seeds} seeds of {RECORDING.name}, {processors} CPUs, load {os.getloadavg()[0]:.1f}")
    hashes, efficiencies = set(), {}
    for place in range(given.rounds):
        serial = None
        for backend in sorted(given.backends, key=["serial", "threads", "ray"].index):
            result = one(backend, wanted, given.seeds, () if given.all else METRICS)
            hashes.add(result["hash"])
            line = f"{backend:8} wall {result['wall']:8.1f} s  CPU {result['cpu']:8.1f} s  memory +{result['memory']:5.0f} MiB  rows {result['rows']}"
            if backend == "serial":
                serial = result["cpu"]
            elif serial is not None:
                efficiencies.setdefault(backend, []).append(serial / (result["wall"] * processors))
                line += f"  efficiency {efficiencies[backend][-1]:.0%}"
            print(line, flush=True)
    for backend, found in efficiencies.items():
        print(f"{backend}: efficiency {sorted(found)[len(found) // 2]:.0%} (median of {len(found)})")
    print(f"rows: {'the same to the byte' if len(hashes) == 1 else 'DIFFERENT'} on {', '.join(given.backends)}")
    raise SystemExit(len(hashes) != 1)


if __name__ == "__main__":
    main()
