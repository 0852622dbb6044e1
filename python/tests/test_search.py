"""Sweeps and searches: the same everywhere, and what they find."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import schedlab as sl

ROOT = Path(__file__).resolve().parents[2]
RECORDING = str(ROOT / "recordings/redis-other-other-closed8.slt")
SPACE = {"sysbench policy": ["other", "idle"], "sysbench nice": range(0, 5)}
BACKENDS = ["threads"] + (["ray"] if importlib.util.find_spec("ray") else [])
with_optuna = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="without Optuna")


def swept(backend: str, **more: object) -> sl.Table:
    return sl.sweep(
        RECORDING, space=SPACE, metrics=["redis-server share", "sysbench share"], seeds=1, duration="200ms", backend=backend, **more
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sweep_is_the_same_on_every_backend(backend: str) -> None:
    serial, other = swept("serial"), swept(backend)
    assert other.to_arrow().equals(serial.to_arrow())
    frame = serial.to_pandas()
    # The unchanged row, then the grid in its order, two numbers each.
    assert list(frame["setting"]) == [place for place in range(11) for _ in range(2)]
    assert frame["variant"][2] == "sysbench policy=other nice=0"
    assert frame["variant"][20 + 1] == "sysbench policy=idle nice=4"


def test_the_rows_of_a_sweep_are_those_of_compare() -> None:
    rows = sl.sweep(RECORDING, settings=["sysbench policy=idle"], seeds=1, duration="300ms").to_arrow()
    study = sl.compare(RECORDING, variants={"idle": "sysbench policy=idle"}, seeds=1, duration="300ms")
    expected = study.rows().to_arrow().drop_columns(["row", "variant"])
    assert rows.drop_columns(["input", "setting", "variant"]).equals(expected)


def test_parts_of_a_sweep_hold_the_same(tmp_path: Path) -> None:
    parts, whole = swept("threads", out=tmp_path / "parts"), swept("threads")
    assert parts.to_arrow().to_pylist() == whole.to_arrow().to_pylist()
    assert parts.columns == whole.columns and len(parts) == len(whole)
    assert parts.to_polars().rows() == whole.to_polars().rows()
    # It is read when it is asked for.
    (tmp_path / "parts/part-000001.parquet").unlink()
    with pytest.raises(FileNotFoundError):
        len(parts)
    swept("threads", out=tmp_path / "again")
    assert len(list((tmp_path / "again").glob("*.parquet"))) == 2
    with pytest.raises(ValueError, match="empty folder"):
        swept("threads", out=tmp_path / "again")


def test_progress_is_shown_where_it_is_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    swept("threads")
    sl.compare(RECORDING, seeds=1, duration="100ms")
    assert capfd.readouterr().err == ""
    # How often the bar is drawn after its first time depends on the machine's speed.
    swept("threads", progress=True)
    assert "sweeping: " in capfd.readouterr().err
    sl.compare(RECORDING, seeds=3, duration="200ms", progress=True)
    assert "comparing: " in capfd.readouterr().err


XEN = str(ROOT / "scenarios/xen-bare-caps.toml")
GROUP = "sysbench group=/batch ; /batch"


@pytest.mark.parametrize(
    ("input", "space", "metric"),
    [
        (RECORDING, {"sysbench policy": ["other", "idle"]}, "sysbench share"),
        (RECORDING, {"sysbench nice": [0, 19]}, "sysbench share"),
        (RECORDING, {"sysbench cpus": ["0", "1"]}, "redis-server share"),
        (RECORDING, {f"{GROUP} cpu.weight": [10, 100]}, "sysbench share"),
        (RECORDING, {f"{GROUP} cpu.max": ["10%", "50%"]}, "sysbench share"),
        (RECORDING, {"base_slice_ns": ["0.3ms", "30ms"]}, "redis-server latency p99"),
        (RECORDING, {"scheduler": ["linux-2.4", "linux-7.2"]}, "redis-server latency p99"),
        (XEN, {"/d1 cap": [25, 75]}, "hog-1 share"),
        (XEN, {"/d1 cap=0 ; /d1 weight": [64, 512]}, "hog-1 share"),
        (XEN, {"/d1 cap=0 ; tslice": ["1ms", "30ms"]}, "hog-1 switches"),
        (XEN, {"/d1 cap=0 ; scheduler tslice=1ms ; ratelimit": ["0", "1ms"]}, None),
        (XEN, {"scheduler": ["xen-credit:version=4.20", "xen-credit2"]}, None),
    ],
    ids=lambda one: " x ".join(one) if isinstance(one, dict) else None,
)
def test_each_dimension_is_run(input: str, space: dict[str, list[object]], metric: str | None) -> None:
    """Two values of a dimension are two rows; where one of them matters, they measure something else."""
    wanted = [metric] if metric else ["hog-1 share"]
    rows = sl.sweep(input, space=space, metrics=wanted, seeds=1, duration="1s").to_pandas()
    assert sorted(set(rows["setting"])) == [0, 1, 2]
    (name,) = space
    key = name.rpartition(";")[2].split()[-1]
    for place, value in enumerate(next(iter(space.values())), 1):
        row = rows[rows["setting"] == place].iloc[0]
        said = row["scheduler"] + " " + row["variant"]
        assert (f"{key}={value}" in said) or (key == "scheduler" and str(value) in said), said
    if metric:
        first, second = (rows[rows["setting"] == place]["value"].iloc[0] for place in (1, 2))
        assert first != second


def test_the_example_measures_what_it_says() -> None:
    command = [sys.executable, str(ROOT / "python/examples/many_settings.py"), "--settings", "2", "--seeds", "1"]
    done = subprocess.run([*command, "--backends", "serial", "threads"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 settings x 1 seeds of redis-other-other-closed8.slt")
    # The unchanged row and two settings, three numbers each.
    assert [line.split()[0] for line in lines[1:3]] == ["serial", "threads"] and "rows 9" in lines[2]
    assert lines[-1] == "rows: the same to the byte on serial, threads"
    wrong = subprocess.run([*command, "--settings", "16001"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "1 to 16000" in wrong.stderr


def tuned(**more: object) -> sl.Tuned:
    arguments: dict[str, object] = {"cost": "sysbench share", "space": SPACE, "trials": 20, "seeds": 2, "seed": 3}
    return sl.tune(RECORDING, goal="redis-server share", **{**arguments, **more})


@with_optuna
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_search_has_one_answer_for_a_seed(backend: str) -> None:
    results = [json.dumps(tuned(backend=one).result) for one in ("serial", backend)]
    assert len({hashlib.sha256(result.encode()).hexdigest() for result in results}) == 1


@with_optuna
def test_a_search_finds_the_setting() -> None:
    found = tuned(validate=[ROOT / "recordings/redis-other-other-closed.slt"])
    assert found.trusted and found.best is not None
    assert "policy=idle" in found.best.text or "nice=4" in found.best.text
    assert found.largest_gain is not None and "policy=idle" in found.largest_gain.text
    assert "sysbench" in found.best.deploy("shell")
    assert found.confirm_command is not None and found.confirm_command.startswith("schedlab confirm ")
    assert list(found.validated.values()) == ["holds"]
    frame = found.pareto().to_pandas()
    assert frame["setting"][0] == "as recorded" and len(frame) > 2
    share = frame["redis-server share"]
    assert (frame["redis-server share low"] <= share).all() and (share <= frame["redis-server share high"]).all()


def test_the_even_search_is_that_of_the_command_line() -> None:
    program = os.environ.get("SCHEDLAB")
    if program is None:
        pytest.skip("the program is not built")
    found = sl.tune(RECORDING, goal="redis-server share", space={"sysbench nice": [0, 10, 19]}, seeds=1, sampler="even")
    command = [program, "tune", RECORDING, "--goal", "redis-server share", "--space", "sysbench nice=0,10,19"]
    done = subprocess.run([*command, "--seeds", "1", "--json"], capture_output=True, text=True, check=True)
    assert found.result == json.loads(done.stdout)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tuned(space={"sysbench nise": [0, 1]}), "did you mean `nice`"),
        (lambda: tuned(space={"base_slice": [1, 2]}), "did you mean `base_slice_ns`"),
        (lambda: tuned(cost="sysbnch share"), "^cost .*did you mean `sysbench`"),
        (lambda: tuned(serve="nginx"), "^serve nginx: no task"),
        (lambda: tuned(space={f"sysbench {name}": [1, 2] for name in ("nice", "a", "b", "c")}, sampler="even"), "^space"),
        (lambda: tuned(space={"sysbench nice": [3]}), "two values or more"),
        (lambda: tuned(backend="dask"), "threads, serial, ray"),
        (lambda: tuned(sampler="best"), "'tpe', 'nsga2' or 'even'"),
        (lambda: sl.sweep(RECORDING, settings=["scheduler base_slice=1ms"]), "did you mean `base_slice_ns`"),
        (lambda: sl.sweep(RECORDING, settings=["sysbnch nice=1"]), "did you mean `sysbench`"),
        (lambda: sl.sweep(RECORDING), "space or settings"),
        (lambda: tuned(replay="letters"), "^replay `letters`: there are auto, messages and wakeups"),
        (lambda: tuned(replay="messages"), "with `schedlab record --messages on` .*replay wakeups"),
        (lambda: sl.sweep("two-hogs", settings=["hog nice=1"], replay="messages"), "^replay messages has a meaning only for recordings"),
        (lambda: sl.log("30ms", "3ms"), "smaller value"),
    ],
)
def test_bad_input_teaches(call, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("[", r"\[")) as caught:
        call()
    # What is between backticks is a command line.
    assert not [part for part in str(caught.value).split("`")[::2] if "--" in part]


def test_a_search_by_messages_is_that_of_the_command() -> None:
    recording = ROOT / "recordings" / "redis-messages.slt"
    arguments = {"goal": "batch share", "space": {"batch policy": ["other", "batch"]}, "seeds": 1, "sampler": "even"}
    found = sl.tune(recording, replay="messages", **arguments)
    assert found.trusted and "--replay messages" in found.confirm_command
    assert sl.tune(recording, **arguments).confirm_command == found.confirm_command
    assert "--replay" not in sl.tune(recording, replay="wakeups", **arguments).confirm_command
    shares = [
        sl.sweep(recording, settings=["batch policy=other"], seeds=1, metrics="batch share", replay=replay).to_pandas()
        for replay in ("messages", "wakeups")
    ]
    assert not shares[0].equals(shares[1])


def test_a_study_says_how_it_is_set() -> None:
    study = sl.compare(RECORDING, variants={"idle": "sysbench policy=idle"}, seeds=2)
    assert "chrt --idle" in study.deploy() and "CPUSchedulingPolicy=idle" in study.deploy("systemd")
    with pytest.raises(ValueError, match="shell, systemd, kubernetes"):
        study.deploy("xl")


def test_diff_is_that_of_the_command_line() -> None:
    found = sl.diff(RECORDING, RECORDING, fail_if=["redis-server latency p99 > 1ms"])
    assert found["schema"] == "schedlab-diff/1" and found["gates"][0]["outcome"] in ("met", "cannot-say")
