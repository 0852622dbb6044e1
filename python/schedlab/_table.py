"""Tables for data frames of every kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from . import _html
from ._native import NativeTable

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    import pyarrow.dataset


# Rows that a notebook shows of a table.
_SHOWN = 10


class Table:
    """A table in Arrow's layout. ``docs/tables.md`` says what the columns mean; times are nanoseconds (``_ns``).

    ``table["wait_ns"]`` is a ``pandas.Series``, ``table[["comm", "wait_ns"]]`` a ``pandas.DataFrame``.
    """

    def __init__(self, native: NativeTable) -> None:
        self._native = native

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the data to any library that speaks Arrow's PyCapsule protocol, without a copy."""
        return self._native.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._native)

    @property
    def columns(self) -> dict[str, str]:
        """Names of the columns, and what each means."""
        return dict(self._native.columns)

    def __iter__(self) -> Iterator[str]:
        """Return the names of the columns, as data frames do."""
        return iter(self.columns)

    @overload
    def __getitem__(self, columns: str) -> pandas.Series: ...
    @overload
    def __getitem__(self, columns: list[str]) -> pandas.DataFrame: ...
    def __getitem__(self, columns: str | list[str]) -> pandas.Series | pandas.DataFrame:
        """Return a column, or several, as ``to_pandas()[columns]`` does without the others."""
        names = [columns] if isinstance(columns, str) else columns
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("name a column, such as table['tid'], or a list of them; to_pandas() selects rows")
        known = self.columns
        for name in names:
            if name not in known:
                raise KeyError(f"there is no column {name}; the columns are {', '.join(known)}")
        pandas = library("pandas")
        frame = self._selected(names).to_pandas(types_mapper=pandas.ArrowDtype)
        return frame[columns]

    def _selected(self, names: list[str]) -> pyarrow.Table:
        return self.to_arrow().select(names)

    def _head(self, count: int) -> list[list[Any]]:
        """Return the first rows."""
        return self._native.head(count)

    def to_arrow(self) -> pyarrow.Table:
        """Return a ``pyarrow.Table`` over the same memory."""
        return library("pyarrow").table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a ``pandas.DataFrame`` over the same memory (columns of ``ArrowDtype``)."""
        pandas = library("pandas")
        return self.to_arrow().to_pandas(types_mapper=pandas.ArrowDtype)

    def to_polars(self) -> polars.DataFrame:
        """Return a ``polars.DataFrame``."""
        return library("polars").DataFrame(self)

    def durations(self) -> Table:
        """Return the table with its times (columns ``_ns``) as durations: ``pandas.Timedelta``, polars' ``Duration``, also behind Parquet."""
        pyarrow = library("pyarrow")
        table = self.to_arrow()
        for index, field in enumerate(table.schema):
            if field.name.endswith("_ns") and field.type == pyarrow.int64():
                kind = pyarrow.duration("ns")
                table = table.set_column(index, field.with_type(kind), table.column(index).cast(kind))
        return ArrowTable(table)

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write a Parquet file."""
        library("pyarrow")
        import pyarrow.parquet

        pyarrow.parquet.write_table(self.to_arrow(), path)

    def __repr__(self) -> str:
        """Say how large it is and what its columns are."""
        return f"<Table of {len(self)} rows: {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook; what a column means is shown where the pointer rests on its name."""
        rows = len(self)
        count = f"{rows:,} rows" if rows <= _SHOWN else f"{rows:,} rows, the first {_SHOWN}"
        return _html.table(list(self.columns.items()), self._head(_SHOWN), count)


class ArrowTable(Table):
    """A table that pyarrow holds."""

    def __init__(self, table: pyarrow.Table) -> None:
        self._arrow = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the data on without a copy."""
        return self._arrow.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._arrow.num_rows

    @property
    def columns(self) -> dict[str, str]:
        """Names of the columns, and what each means where that is written down."""
        return _columns(self._arrow.schema)

    def to_arrow(self) -> pyarrow.Table:
        """Return the ``pyarrow.Table``."""
        return self._arrow

    def _head(self, count: int) -> list[list[Any]]:
        return _rows(self._arrow.slice(0, count))


class FilesTable(Table):
    """A table in Parquet files, which are read when they are asked for: in memory is what was taken."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = [fspath(file) for file in files]

    def _dataset(self) -> pyarrow.dataset.Dataset:
        return library("pyarrow.dataset").dataset(self._files, format="parquet")

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the data on, a piece at a time."""
        return self._dataset().scanner().to_reader().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._dataset().count_rows()

    @property
    def columns(self) -> dict[str, str]:
        """Names of the columns, and what each means where that is written down."""
        return _columns(self._dataset().schema)

    def to_arrow(self) -> pyarrow.Table:
        """Return a ``pyarrow.Table`` with everything in memory."""
        return self._dataset().to_table()

    def _selected(self, names: list[str]) -> pyarrow.Table:
        return self._dataset().to_table(columns=names)

    def _head(self, count: int) -> list[list[Any]]:
        return _rows(self._dataset().head(count))


def _rows(table: pyarrow.Table) -> list[list[Any]]:
    return [list(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def _columns(schema: pyarrow.Schema) -> dict[str, str]:
    return {field.name: (field.metadata or {}).get(b"doc", b"").decode() for field in schema}


def library(name: str, extra: str = "schedlab[pandas]' or 'schedlab[polars]", more: str = "") -> Any:
    """Import a library that schedlab does not need by itself."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"this needs {name.split('.')[0]}: pip install '{extra}'{more}") from None
