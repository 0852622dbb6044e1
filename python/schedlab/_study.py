"""Comparisons."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import Any

from . import _native
from ._recording import Recording
from ._table import Table
from ._time import nanoseconds


def schedulers() -> dict[str, str]:
    """Return every scheduler with one line about it."""
    return dict(_native.schedulers())


def scenarios() -> list[str]:
    """Return the names of the gallery's scenarios."""
    return _native.scenarios()


def compare(
    input: Recording | str | PathLike[str],
    *,
    schedulers: Iterable[str] = (),
    variants: Mapping[str, str] | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    duration: int | str | None = None,
    jobs: int = 0,
) -> Study:
    """Play a recording or a scenario under schedulers and variants, as ``schedlab compare`` does.

    ``variants`` maps a name to settings, such as ``{"batch idle": "sysbench policy=idle"}``; ``schedulers`` have their knobs
    behind a colon, such as ``"linux-6.18:base_slice_ns=6ms"``. ``seeds`` is how many runs each row gets, ``seed`` the first,
    ``duration`` the virtual time, ``jobs`` the number of threads (0: one per CPU; the result does not depend on it).
    Ctrl-C ends it at once.
    """
    if isinstance(input, Recording):
        if input.window_ns is not None:
            raise ValueError("a part of a recording cannot be compared yet: compare the whole one")
        input = input.path
    written = [f"{name}: {settings}" for name, settings in (variants or {}).items()]
    length = None if duration is None else nanoseconds(duration)
    return Study(_native.compare(fspath(input), list(schedulers), written, seeds, seed, length, jobs))


class Study:
    """The result of a comparison. Made by :func:`compare`."""

    def __init__(self, native: _native.NativeStudy) -> None:
        self._native = native

    @property
    def verdict(self) -> str:
        """What it comes to, and how sure that is: two sentences."""
        return " ".join(self._native.verdict)

    @property
    def result(self) -> dict[str, Any]:
        """The whole result, in the schema ``schedlab-compare/1`` (``docs/result-schema.md``)."""
        return json.loads(self._native.json())

    @property
    def trusted(self) -> bool:
        """Whether the simulation reproduces the recording; True for scenarios."""
        replay = self.result["self_replay"]
        return replay is None or replay["trusted"]

    def rows(self) -> Table:
        """Return the measurements of every row and subject, with their errors."""
        return Table(self._native.rows())

    def expectations(self) -> Table:
        """Return the expectations of a scenario, and what came of them."""
        return Table(self._native.expectations())

    def __repr__(self) -> str:
        """Say what it comes to."""
        return f"<Study: {self.verdict}>"
