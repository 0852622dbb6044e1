"""What a search or a sweep varies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._time import nanoseconds


@dataclass(frozen=True)
class Span:
    """All values from ``low`` to ``high``: made by :func:`log` and :func:`linear`."""

    low: int
    high: int
    by_factors: bool
    unit: str = ""

    def text(self, value: float) -> str:
        """Return a value of it with three digits, inside."""
        digits = 10 ** max(0, math.floor(math.log10(max(abs(value), 1))) - 2)
        return f"{min(max(round(value / digits) * digits, self.low), self.high)}{self.unit}"


def log(low: float | str, high: float | str) -> Span:
    """Return the values between two, tried by factors: numbers, or times such as ``"0.3ms"``.

    >>> log("0.3ms", "30ms")
    Span(low=300000, high=30000000, by_factors=True, unit='ns')
    """
    return _span(low, high, True)


def linear(low: float | str, high: float | str) -> Span:
    """Return the values between two, tried evenly."""
    return _span(low, high, False)


def _span(low: float | str, high: float | str, by_factors: bool) -> Span:
    times = isinstance(low, str)
    if times != isinstance(high, str):
        raise ValueError(f"{low!r} to {high!r}: give two numbers, or two times")
    ends = [nanoseconds(end) if isinstance(end, str) else int(end) for end in (low, high)]
    if ends[0] >= ends[1] or (by_factors and ends[0] <= 0):
        raise ValueError(f"{low!r} to {high!r}: a span goes from a smaller value to a larger one, by factors from above 0")
    return Span(ends[0], ends[1], by_factors, "ns" if times else "")


Values = Span | range | Sequence[object]


def values(what: str, of: Values) -> Span | list[str]:
    """Return the values of a dimension as they are written in a variant."""
    if isinstance(of, Span):
        return of
    if isinstance(of, str) or not isinstance(of, Sequence) or len(of) < 2:
        raise ValueError(f"{what}: give a list of two values or more, a range, or a span such as sl.log('0.3ms', '30ms')")
    return [str(value) for value in of]


def written(what: str, of: Span | list[str]) -> str:
    """Return a dimension as the command line takes it."""
    if isinstance(of, Span):
        return f"{what}={of.low}{of.unit}..{of.high}{of.unit}"
    return f"{what}={','.join(of)}"


def grid(space: Mapping[str, Values]) -> list[tuple[str | None, str]]:
    """Return every combination as (scheduler, settings); the last dimension changes first.

    >>> grid({"sysbench policy": ["batch", "idle"], "base_slice_ns": ["1ms"] * 2})[0]
    (None, 'sysbench policy=batch ; scheduler base_slice_ns=1ms')
    """
    axes = []
    for what, of in space.items():
        listed = values(what, of)
        if isinstance(listed, Span):
            raise ValueError(f"{what}: a sweep runs every value: give a list or a range, not a span")
        axes.append([(what, value) for value in listed])
    return [point(dict(pairs)) for pairs in itertools.product(*axes)]


def point(chosen: Mapping[str, str]) -> tuple[str | None, str]:
    """Return (scheduler, settings) of one value for each dimension; what one target has is one clause."""
    scheduler = None
    fixed: list[str] = []
    clauses: dict[str, list[str]] = {}
    for what, value in chosen.items():
        # Before a ";" comes what every value has.
        before, _, varied = what.rpartition(";")
        if before.strip() and before.strip() not in fixed:
            fixed.append(before.strip())
        target, _, key = varied.strip().rpartition(" ")
        if (target, key) == ("", "scheduler"):
            scheduler = value
            continue
        clauses.setdefault(target.strip() or "scheduler", []).append(f"{key}={value}")
    quoted = {target: f'"{target}"' if " " in target else target for target in clauses}
    texts = fixed + [f"{quoted[target]} {' '.join(of)}" for target, of in clauses.items()]
    return scheduler, " ; ".join(texts)
