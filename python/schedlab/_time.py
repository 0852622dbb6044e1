"""Times as people write them."""

from __future__ import annotations

import re

_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s|min|h)\s*")


def nanoseconds(value: int | str) -> int:
    """Return a time in nanoseconds: a whole number is one, a text has a unit, such as ``"1.5ms"``.

    >>> nanoseconds("1.5ms"), nanoseconds(7)
    (1500000, 7)
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"{value!r}: write a time as nanoseconds (a whole number) or with a unit, such as '1.5ms'")
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"{value}: a time is not negative")
        return value
    found = _TIME.fullmatch(value)
    if found is None:
        raise ValueError(f"{value!r}: write a time with its unit (ns, us, ms, s, min, h), such as '1.5ms'")
    whole, _, part = found[1].partition(".")
    unit = _UNITS[found[2]]
    return int(whole) * unit + (int(part) * unit // 10 ** len(part) if part else 0)
