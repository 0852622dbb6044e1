"""Recordings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from os import PathLike, fspath
from typing import Any

from . import _native
from ._scheduler import Scheduler
from ._table import Table
from ._time import nanoseconds


def open(path: str | PathLike[str]) -> Recording:
    """Read a recording, or a trace of any kind that ``schedlab import`` reads (perf.data, trace-cmd text, Perfetto, ...).

    A file that is not there is a :class:`FileNotFoundError`.

    >>> open("recordings/redis-other-other-closed8.slt").duration_ns > 0
    True
    """
    return Recording(_native.open(fspath(path)))


def scenario(
    name: str | PathLike[str],
    *,
    scheduler: str | Scheduler | None = None,
    variant: str | None = None,
    seed: int | None = None,
    duration: int | str | None = None,
) -> Recording:
    """Simulate a scenario once, and return what happened as a recording: a file (``.toml``, or ``.json`` of rt-app), or a name of
    :func:`scenarios`.

    ``scheduler`` has its knobs behind a colon (the default is the scenario's first), or is a :class:`Scheduler` written in Python;
    ``variant`` is one of the scenario's; ``seed`` and ``duration`` replace the scenario's. Of virtual machines it is the hypervisor's view. :func:`compare` takes the name of a scenario, and
    runs all of its schedulers, variants and seeds. Ctrl-C ends it at once.

    >>> scenario("two-hogs", scheduler="linux-6.1", duration="1s").slices.to_pandas()["length_ns"].median() > 0
    True
    """
    length = None if duration is None else nanoseconds(duration)
    if isinstance(scheduler, Scheduler):
        return Recording(_native.scenario_by(fspath(name), scheduler, variant, seed, length))
    return Recording(_native.scenario(fspath(name), scheduler, variant, seed, length))


def input_of(
    input: Recording | str | PathLike[str], duration: int | str | None = None
) -> tuple[str, int | None, int | None]:
    """Return what is simulated, where it begins, and for how long: of a part of a recording no longer than that is."""
    name, begin, most = input._input() if isinstance(input, Recording) else (fspath(input), None, None)
    length = None if duration is None else nanoseconds(duration)
    if length is not None and most is not None and length > most:
        raise ValueError(f"duration: the part of the recording is only {most / 1e9:g} s long")
    return name, begin, most if length is None else length


def texts(given: str | Iterable[str]) -> list[str]:
    """Return texts as a list: one text is meant alone."""
    return [given] if isinstance(given, str) else list(given)


class Recording:
    """What a scheduler did for some time, recorded or simulated. Made by :func:`open` and :func:`scenario`."""

    def __init__(self, native: _native.NativeRecording) -> None:
        self._native = native

    @property
    def path(self) -> str:
        """The file or the scenario that it came from."""
        return fspath(self._native.path)

    @property
    def window_ns(self) -> tuple[int, int] | None:
        """The part of the file that it is, or None when it is all of it."""
        return self._native.window

    @property
    def simulated(self) -> bool:
        """Whether it was simulated by :func:`scenario`."""
        return self._native.simulated

    @property
    def duration_ns(self) -> int:
        """Its length in nanoseconds."""
        return self._native.duration_ns

    @property
    def header(self) -> dict[str, Any]:
        """Machine, kernel, capabilities, tasks and groups, in the words of the recording's header."""
        return json.loads(self._native.header_json())

    @property
    def repairs(self) -> dict[str, Any]:
        """What was repaired when it was read."""
        return json.loads(self._native.repairs_json())

    @property
    def events(self) -> Table:
        """Every event, in the order of time."""
        return self._table("events")

    @property
    def tasks(self) -> Table:
        """Every task: its attributes, and what it got."""
        return self._table("tasks")

    @property
    def latencies(self) -> Table:
        """Every wait for a CPU (run-queue latency)."""
        return self._table("latencies")

    @property
    def activations(self) -> Table:
        """Every activation of a task, from a wakeup to the next block: which task woke it, its CPU time (demand), its response."""
        return self._table("activations")

    @property
    def slices(self) -> Table:
        """Every time for which a task kept a CPU without a break."""
        return self._table("slices")

    @property
    def migrations(self) -> Table:
        """Every move to another CPU's run queue."""
        return self._table("migrations")

    @property
    def blame(self) -> Table:
        """Who ran while others waited."""
        return self._table("blame")

    def __getitem__(self, window: slice) -> Recording:
        """Return a part, such as ``r["0.5s":"2s"]``, as if it had been recorded then, with what was pending at its beginning."""
        if not isinstance(window, slice) or window.step is not None:
            raise TypeError("write a window of time, such as r['0.5s':'2s']")
        begin = 0 if window.start is None else nanoseconds(window.start)
        end = self.duration_ns if window.stop is None else nanoseconds(window.stop)
        return Recording(self._native.part(begin, end))

    def __repr__(self) -> str:
        """Say what it is."""
        part = "" if self.window_ns is None else f", from {self.window_ns[0] / 1e9} s on"
        return f"<Recording {self.path}: {self.duration_ns / 1e9:.2f} s{part}>"

    def _input(self) -> tuple[str, int | None, int | None]:
        """Return its file, and beginning and length of the part that is meant, for what simulates it."""
        if self.simulated:
            raise ValueError(f"{self.path} was simulated: give the scenario's name instead of its events")
        if self.window_ns is None:
            return self.path, None, None
        begin, end = self.window_ns
        return self.path, begin or None, end - begin

    def _table(self, name: str) -> Table:
        return Table(self._native.table(name))
