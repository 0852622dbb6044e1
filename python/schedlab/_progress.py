"""Progress bars, on terminals and in notebooks, where tqdm is installed."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def _is_watched() -> bool:
    """Tell a terminal, and a notebook that can show a bar which goes away again, from a file or a pipe."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ == "ZMQInteractiveShell":
        return importlib.util.find_spec("ipywidgets") is not None
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def bar(what: str, wanted: bool | None) -> Iterator[Callable[[int, int], None] | None]:
    """Yield what is to be called with (done, all), or None. ``wanted`` None: on terminals and in notebooks."""
    if wanted is None:
        wanted = _is_watched()
    if not wanted or importlib.util.find_spec("tqdm") is None:
        yield None
        return
    with warnings.catch_warnings():
        # tqdm says when it falls back to text.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm
    shown = tqdm(desc=what, unit="run", leave=False, disable=False)

    def report(done: int, all: int) -> None:
        shown.total = all
        shown.update(done - shown.n)

    try:
        yield report
    finally:
        shown.close()
