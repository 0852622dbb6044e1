"""Where the runs of a sweep or a search happen. What comes out is the same everywhere."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from . import _native

BACKENDS = ("threads", "serial", "ray")
# Tasks that wait for each CPU, so that none idles while results are fetched.
_AHEAD = 4


def check(backend: str) -> None:
    """Refuse what is no backend."""
    if backend not in BACKENDS:
        raise ValueError(f"backend {backend!r}: use one of {', '.join(BACKENDS)}")


def run(backend: str, input: str, make: tuple[Any, ...], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """Yield what each of ``calls`` returns, in their order. ``make`` says what is made of the input, see :func:`_made`."""
    if backend == "ray":
        yield from _on_ray(input, make, calls)
        return
    jobs = 1 if backend == "serial" else 0
    made = _made(input, make)
    for call in calls:
        yield _call(made, call, jobs)


def _made(input: str, make: tuple[Any, ...]) -> Any:
    """Make a NativeSweep or a NativeSearch: its name, and its arguments behind the input."""
    name, *arguments = make
    return getattr(_native, name)(input, *arguments)


def _call(made: Any, call: tuple[Any, ...], jobs: int) -> Any:
    name, *arguments = call
    return getattr(made, name)(*arguments, jobs)


# --- in a worker of Ray ---------------------------------------------------------------------------------

_CACHE: dict[Any, Any] = {}


def _work(input: str, content: bytes | None, make: tuple[Any, ...], call: tuple[Any, ...]) -> Any:
    """Do one call. The input is read once in each worker; a file's content may come from another machine."""
    key = (input, repr(make), None if content is None else hashlib.sha256(content).hexdigest())
    if key not in _CACHE:
        _CACHE.clear()
        if content is None:
            _CACHE[key] = _made(input, make)
        else:
            with tempfile.TemporaryDirectory(prefix="schedlab-") as folder:
                path = Path(folder, Path(input).name)
                path.write_bytes(content)
                _CACHE[key] = _made(os.fspath(path), make)
    result = _call(_CACHE[key], call, 1)
    return _plain(result)


def _plain(result: Any) -> Any:
    """Return a table as one that can be sent."""
    if isinstance(result, _native.NativeTable):
        import pyarrow

        return pyarrow.table(result)
    return result


def _on_ray(input: str, make: tuple[Any, ...], calls: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    try:
        import ray
    except ImportError:
        raise ImportError("backend 'ray' needs Ray: pip install 'schedlab[ray]'") from None
    if not ray.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(include_dashboard=False, log_to_driver=False, object_store_memory=200 * 2**20)
    path = Path(input)
    content = ray.put(path.read_bytes()) if path.is_file() else None
    made = ray.put(make)
    task: Callable[..., Any] = ray.remote(num_cpus=1, max_retries=3)(_work)
    most = max(1, int(ray.cluster_resources().get("CPU", 1))) * _AHEAD
    waiting: deque[Any] = deque()
    try:
        for call in calls:
            if len(waiting) >= most:
                yield ray.get(waiting.popleft())
            waiting.append(task.remote(input, content, made, call))
        while waiting:
            yield ray.get(waiting.popleft())
    except ray.exceptions.RayTaskError as error:
        # The message that the engine has, as on threads.
        raise error.cause if isinstance(error.cause, Exception) else error from None
    finally:
        for left in waiting:
            ray.cancel(left, force=False)
