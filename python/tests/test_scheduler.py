"""Schedulers that are written in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import schedlab as sl


class Turns(sl.Scheduler):
    """Round robin with slices of 4 ms."""

    slice_ns = 4_000_000

    def pick(self, cpu, now_ns, runnable):
        return runnable[0]


def scenario(folder: Path, cpus: int, tasks: str) -> Path:
    file = folder / "scenario.toml"
    file.write_text(f'schedulers = ["rr"]\nduration = "100ms"\n[machine]\ncpus = {cpus}\n{tasks}')
    return file


HOGS = '[[task]]\nname = "a"\nprogram = "hog"\n[[task]]\nname = "b"\nprogram = "hog"\nnice = 5\n'
SLEEPER = '[[task]]\nname = "s"\nprogram = ["every 10ms", "run 1ms"]\n'


def test_turns_in_python_are_those_of_the_textbook(tmp_path):
    file = scenario(tmp_path, 1, HOGS + SLEEPER)
    own, textbook = (sl.scenario(file, scheduler=scheduler) for scheduler in (Turns(), "rr"))
    columns = ["began_ns", "length_ns", "comm"]
    assert own.slices.to_pandas()[columns].equals(textbook.slices.to_pandas()[columns])
    assert own.header["kernel"] == "Turns"


def test_what_a_scheduler_sees_and_when_it_preempts(tmp_path):
    seen = []

    class SleepersFirst(sl.Scheduler):
        def begin(self):
            seen.clear()

        def preempts(self, woken, running, now_ns):
            assert now_ns >= woken.since_ns and running.ran_ns <= now_ns
            return woken.name == "s"

        def pick(self, cpu, now_ns, runnable):
            assert self.cpus == 1 and cpu == 0
            seen.append([waiting.name for waiting in runnable])
            return min(runnable, key=lambda waiting: (waiting.name != "s", waiting.nice, waiting.since_ns))

    scheduler = SleepersFirst()
    for _ in range(2):
        r = sl.scenario(scenario(tmp_path, 1, HOGS + SLEEPER), scheduler=scheduler)
        waits = r.latencies.to_pandas()
        assert waits[waits["comm"] == "s"]["wait_ns"].max() == 0
        ran = r.tasks.to_pandas().set_index("comm")["run_ns"]
        assert (ran["a"], ran["b"], ran["s"]) == (90_000_000, 0, 10_000_000)
        assert sorted(seen[0]) == ["a", "b", "s"]


def test_several_cpus_share_what_is_runnable(tmp_path):
    threads = '[[task]]\nname = "t"\ncount = 3\nprogram = "hog"\n[[task]]\nname = "p"\ncpus = "1"\nprogram = "hog"\n'
    r = sl.scenario(scenario(tmp_path, 2, threads), scheduler=Turns())
    table = r.tasks.to_pandas()
    assert table["run_ns"].sum() == 200_000_000
    # The pinned one takes its turns on its CPU only; all four have some.
    assert table["run_ns"].min() > 20_000_000
    slices = r.slices.to_pandas()
    assert set(slices[slices["comm"] == "p"]["cpu"]) == {1}


def test_a_mistake_ends_the_simulation(tmp_path):
    file = scenario(tmp_path, 1, HOGS)

    class Raises(sl.Scheduler):
        def pick(self, cpu, now_ns, runnable):
            raise KeyError("mine")

    class Elsewhere(sl.Scheduler):
        def pick(self, cpu, now_ns, runnable):
            return runnable[0]._replace(task=7)

    class Number(sl.Scheduler):
        def pick(self, cpu, now_ns, runnable):
            return 3

    class NoSlice(Turns):
        slice_ns = 0

    for scheduler, kind, text in [
        (Raises(), KeyError, "mine"),
        (Elsewhere(), ValueError, "task 7 is not among the runnable tasks"),
        (Number(), TypeError, "not 3"),
        (sl.Scheduler(), NotImplementedError, "has no method pick"),
        (NoSlice(), ValueError, "slice_ns"),
    ]:
        with pytest.raises(kind, match=text):
            sl.scenario(file, scheduler=scheduler)


def test_a_scheduler_that_idles_leaves_the_cpu_idle(tmp_path):
    class Never(sl.Scheduler):
        def pick(self, cpu, now_ns, runnable):
            return None

    r = sl.scenario(scenario(tmp_path, 2, HOGS), scheduler=Never())
    assert r.tasks.to_pandas()["run_ns"].sum() == 0
