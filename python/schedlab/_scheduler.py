"""A scheduler that is written in Python: for lessons and first ideas."""

from __future__ import annotations

from typing import NamedTuple


class Waiting(NamedTuple):
    """A task that wants a CPU and has none."""

    task: int
    """Its number, from 0 on in the order of the scenario."""
    name: str
    """Its name."""
    nice: int
    """Its nice value."""
    policy: str
    """Its policy, as in a scenario: ``other``, ``fifo:50``, ``deadline:...``."""
    since_ns: int
    """When it woke up, or was taken off its CPU."""
    ran_ns: int
    """CPU time that it had so far."""
    last_cpu: int
    """The CPU on which it ran last."""


class Scheduler:
    """What a scheduler in Python is made from: :func:`schedlab.scenario` takes an instance as ``scheduler``.

    All CPUs share one set of runnable tasks. When a CPU has nothing to run, when the slice of its task ends, or when
    :meth:`preempts` said so, :meth:`pick` is asked. A woken task goes to an idle CPU, if there is one on which it may run.
    Groups, weights and limits are nothing that it knows. An exception ends the simulation and is raised.

    >>> class LeastRun(Scheduler):
    ...     slice_ns = 1_000_000
    ...     def pick(self, cpu, now_ns, runnable):
    ...         return min(runnable, key=lambda waiting: waiting.ran_ns)
    >>> import schedlab
    >>> r = schedlab.scenario("two-hogs", scheduler=LeastRun(), duration="1s")
    >>> round(r.slices.to_pandas()["length_ns"].median())
    1000000
    """

    slice_ns: int | None = None
    """How long a task runs until :meth:`pick` is asked again, in nanoseconds; ``None``: until it blocks or is preempted."""

    cpus: int = 0
    """How many CPUs there are; set when a simulation begins."""

    def begin(self) -> None:
        """A simulation begins: what was kept of another one may be forgotten."""

    def pick(self, cpu: int, now_ns: int, runnable: list[Waiting]) -> Waiting | None:
        """Return which of ``runnable``, those that may run on ``cpu`` in the order in which they came, runs there now; ``None``: it idles."""
        raise NotImplementedError(f"{type(self).__name__} has no method pick")

    def preempts(self, woken: Waiting, running: Waiting, now_ns: int) -> bool:
        """Whether ``woken``, for which no CPU is idle, takes the CPU of ``running``; then :meth:`pick` is asked there."""
        return False

    def _begin(self, tasks: list[tuple[str, int, str]], cpus: int) -> None:
        self._tasks = tasks
        self.cpus = cpus
        self.begin()

    def _waiting(self, task: int, since_ns: int, ran_ns: int, last_cpu: int) -> Waiting:
        return Waiting(task, *self._tasks[task], since_ns, ran_ns, last_cpu)

    def _pick(self, cpu: int, now_ns: int, waiting: list[tuple[int, int, int, int]]) -> int | None:
        picked = self.pick(cpu, now_ns, [self._waiting(*one) for one in waiting])
        if picked is not None and not isinstance(picked, Waiting):
            raise TypeError(f"pick: return one of the runnable tasks or None, not {picked!r}")
        return None if picked is None else picked.task

    def _preempts(self, woken: tuple[int, int, int, int], running: tuple[int, int, int, int], now_ns: int) -> bool:
        return bool(self.preempts(self._waiting(*woken), self._waiting(*running), now_ns))
