"""Sweeps and searches on Ray: the same rows as on threads, with a worker killed and a machine removed meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import schedlab as sl

# Without Ray these tests are skipped by name: it is 350 MB, and not on every version of Python.
ray = pytest.importorskip("ray", reason="without Ray (pip install 'schedlab[ray]')")

ROOT = Path(__file__).resolve().parents[2]
RECORDING = str(ROOT / "recordings/redis-other-other-closed8.slt")
# Seconds after which a test gives up: a busy machine takes minutes.
LONG = 600
METRICS = ["redis-server share", "sysbench share"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """Two nodes on this machine, a CPU each: as `ray start --head` here and `ray start --address=...` there make them."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    memory = 100 * 2**20
    # A node that is gone is missed after eight seconds instead of half a minute; one that is slow on a busy machine is not.
    health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 8}
    head = {"num_cpus": 1, "object_store_memory": memory, "include_dashboard": False, "_system_config": health}
    both = Cluster(initialize_head=True, head_node_args=head)
    both.second = both.add_node(num_cpus=1, object_store_memory=memory)
    ray.init(address=both.address, log_to_driver=False)
    both.wait_for_nodes()
    yield both
    ray.shutdown()
    both.shutdown()


def swept(backend: str, duration: str, nices: range) -> sl.Table:
    space = {"sysbench policy": ["other", "idle"], "sysbench nice": nices}
    return sl.sweep(RECORDING, space=space, metrics=METRICS, seeds=2, duration=duration, backend=backend)


def disturbed(disturb: Callable[[], None]) -> tuple[sl.Table, sl.Table]:
    """Return a sweep on Ray that is disturbed while it runs, and the same on this machine's threads."""
    # A sweep that was over before it was disturbed says nothing: once more, a longer one.
    for duration in ("1s", "2s", "3s"):
        found: list[sl.Table] = []
        running = threading.Thread(target=lambda found=found, duration=duration: found.append(swept("ray", duration, range(0, 16))))
        running.start()
        try:
            disturb()
            in_time = running.is_alive()
        finally:
            running.join(LONG)
        assert found, "the sweep did not end"
        if in_time:
            return found[0], swept("threads", duration, range(0, 16))
    raise AssertionError("each sweep was over before it was disturbed")


def workers() -> list[int]:
    """Return the processes of Ray that do our work: descendants of this one."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                title = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::_work") and is_ours(int(folder.name)):
                found.append(int(folder.name))
    return found


def is_ours(process: int) -> bool:
    while process > 1:
        if process == os.getpid():
            return True
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


def wait_for(found: Callable[[], Any], what: str) -> Any:
    """Return what ``found`` returns once it is true."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {LONG} s")


def alive() -> int:
    return sum(node["Alive"] for node in ray.nodes())


def test_a_sweep_on_two_nodes_is_that_of_one_thread(cluster: object) -> None:
    assert alive() == 2
    assert swept("ray", "100ms", range(0, 12)).to_arrow().equals(swept("serial", "100ms", range(0, 12)).to_arrow())


def test_an_error_on_ray_is_that_of_threads(cluster: object) -> None:
    for backend in ("threads", "ray"):
        with pytest.raises(ValueError, match="did you mean `sysbench`"):
            sl.sweep(RECORDING, settings=["sysbnch nice=1"], backend=backend)


def test_parts_that_ray_writes_hold_the_same(cluster: object, tmp_path: Path) -> None:
    space = {"sysbench nice": range(0, 20)}
    more = {"space": space, "metrics": METRICS, "seeds": 1, "duration": "100ms"}
    tables = [sl.sweep(RECORDING, backend=backend, out=tmp_path / backend, **more) for backend in ("threads", "ray")]
    assert tables[0].to_arrow().equals(tables[1].to_arrow())
    files = [sorted(path.name for path in (tmp_path / backend).iterdir()) for backend in ("threads", "ray")]
    assert files[0] == files[1] == ["part-000000.parquet", "part-000001.parquet", "part-000002.parquet"]


def test_a_search_on_two_nodes_is_that_of_threads(cluster: object) -> None:
    pytest.importorskip("optuna")
    space = {"sysbench policy": ["other", "idle"], "sysbench nice": range(0, 20)}
    arguments = {"goal": "redis-server share", "cost": "sysbench share", "space": space, "trials": 20, "seeds": 1, "seed": 5}
    results = [sl.tune(RECORDING, backend=backend, duration="200ms", **arguments).result for backend in ("threads", "ray")]
    assert results[0] == results[1]


def test_a_killed_worker_changes_nothing(cluster: object) -> None:
    killed = []

    def kill() -> None:
        worker = wait_for(workers, "a worker")[0]
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
            killed.append(worker)

    on_ray, on_threads = disturbed(kill)
    assert killed
    assert on_ray.to_arrow().equals(on_threads.to_arrow())


def test_a_removed_machine_changes_nothing(cluster: object) -> None:
    def remove() -> None:
        wait_for(workers, "a worker")
        if cluster.second is not None:
            cluster.remove_node(cluster.second, allow_graceful=False)
            cluster.second = None

    on_ray, on_threads = disturbed(remove)
    assert on_ray.to_arrow().equals(on_threads.to_arrow())
    assert wait_for(lambda: alive() == 1, "one node that is left")
