"""Sweeps and searches on Ray: the same rows as on threads, with a worker killed and a machine removed meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import schedlab as sl

# Without Ray these tests are skipped by name: it is 350 MB, and not on every version of Python.
ray = pytest.importorskip("ray", reason="without Ray (pip install 'schedlab[ray]')")

ROOT = Path(__file__).resolve().parents[2]
RECORDING = str(ROOT / "recordings/redis-other-other-closed8.slt")
METRICS = ["redis-server share", "sysbench share"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """Two nodes on this machine, a CPU each: as `ray start --head` here and `ray start --address=...` there make them."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    memory = 100 * 2**20
    # A node that is gone is missed after two seconds instead of half a minute.
    health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
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
    found: list[sl.Table] = []
    running = threading.Thread(target=lambda: found.append(swept("ray", "1s", range(0, 16))))
    running.start()
    try:
        disturb()
        assert running.is_alive(), "the sweep was over before it was disturbed"
    finally:
        running.join(120)
    assert found, "the sweep did not end"
    return found[0], swept("threads", "1s", range(0, 16))


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


def wait_for_workers() -> list[int]:
    for _ in range(600):
        found = workers()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("no worker began within 30 s")


def test_a_sweep_on_two_nodes_is_that_of_one_thread(cluster: object) -> None:
    assert len([node for node in ray.nodes() if node["Alive"]]) == 2
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
        killed.extend(wait_for_workers()[:1])
        os.kill(killed[0], signal.SIGKILL)

    on_ray, on_threads = disturbed(kill)
    assert killed
    assert on_ray.to_arrow().equals(on_threads.to_arrow())


def test_a_removed_machine_changes_nothing(cluster: object) -> None:
    def remove() -> None:
        wait_for_workers()
        time.sleep(0.3)
        cluster.remove_node(cluster.second, allow_graceful=False)

    on_ray, on_threads = disturbed(remove)
    assert on_ray.to_arrow().equals(on_threads.to_arrow())
    assert len([node for node in ray.nodes() if node["Alive"]]) == 1
