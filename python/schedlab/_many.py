"""Several recordings together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from os import PathLike, cpu_count, fspath
from pathlib import Path
from typing import overload

from ._recording import Recording, open
from ._table import ArrowTable, Table, library


def open_many(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> Recordings:
    """Read several recordings: a list of files, a pattern such as ``"runs/*.slt"``, or a folder, of which the ``.slt`` files are read.

    >>> len(open_many("recordings/redis-*.slt").latencies) > 0
    True
    """
    names = _files(fspath(paths)) if isinstance(paths, (str, PathLike)) else [fspath(path) for path in paths]
    if not names:
        raise FileNotFoundError(f"{paths}: no recording is there")
    with ThreadPoolExecutor(min(len(names), cpu_count() or 1)) as pool:
        return Recordings(pool.map(open, names))


def _files(name: str) -> list[str]:
    """Return the files of a folder or a pattern, in the order of their names."""
    if Path(name).is_dir():
        return sorted(str(path) for path in Path(name).glob("*.slt"))
    return [name] if Path(name).exists() else sorted(glob(name))


class Recordings(Sequence[Recording]):
    """Recordings in a fixed order. Made by :func:`open_many`. Its tables have a first column ``recording``: the file of each row."""

    def __init__(self, recordings: Iterable[Recording]) -> None:
        self._recordings = tuple(recordings)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._recordings)

    @overload
    def __getitem__(self, place: int) -> Recording: ...
    @overload
    def __getitem__(self, place: slice) -> Recordings: ...
    def __getitem__(self, place: int | slice) -> Recording | Recordings:
        """Return one of them, or several: ``[0]``, ``[1:3]``."""
        return Recordings(self._recordings[place]) if isinstance(place, slice) else self._recordings[place]

    def __iter__(self) -> Iterator[Recording]:
        """Return each of them."""
        return iter(self._recordings)

    @property
    def events(self) -> Table:
        """:attr:`Recording.events` of each."""
        return self._joined(lambda one: one.events)

    @property
    def tasks(self) -> Table:
        """:attr:`Recording.tasks` of each. Places of tasks (``task``) count within their recording."""
        return self._joined(lambda one: one.tasks)

    @property
    def latencies(self) -> Table:
        """:attr:`Recording.latencies` of each."""
        return self._joined(lambda one: one.latencies)

    @property
    def activations(self) -> Table:
        """:attr:`Recording.activations` of each."""
        return self._joined(lambda one: one.activations)

    @property
    def slices(self) -> Table:
        """:attr:`Recording.slices` of each."""
        return self._joined(lambda one: one.slices)

    @property
    def migrations(self) -> Table:
        """:attr:`Recording.migrations` of each."""
        return self._joined(lambda one: one.migrations)

    @property
    def blame(self) -> Table:
        """:attr:`Recording.blame` of each."""
        return self._joined(lambda one: one.blame)

    def __repr__(self) -> str:
        """Say which they are."""
        return f"<Recordings: {', '.join(one.path for one in self)}>"

    def _joined(self, of: Callable[[Recording], Table]) -> Table:
        pyarrow = library("pyarrow", "schedlab[pandas]")
        kind = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        field = pyarrow.field("recording", kind, metadata={"doc": "The file that the row is from."})
        parts = []
        for one in self:
            part = of(one).to_arrow()
            parts.append(part.add_column(0, field, pyarrow.array([one.path] * len(part), kind)))
        return ArrowTable(pyarrow.concat_tables(parts).unify_dictionaries().combine_chunks())
