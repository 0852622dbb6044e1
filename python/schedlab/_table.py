"""Tables for data frames of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._native import NativeTable

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    import pyarrow.dataset


class Table:
    """A table in Arrow's layout. ``docs/tables.md`` says what the columns mean; times are nanoseconds (``_ns``)."""

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

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write a Parquet file."""
        library("pyarrow")
        import pyarrow.parquet

        pyarrow.parquet.write_table(self.to_arrow(), path)

    def __repr__(self) -> str:
        """Say how large it is and what its columns are."""
        return f"<Table of {len(self)} rows: {', '.join(self.columns)}>"


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


def _columns(schema: pyarrow.Schema) -> dict[str, str]:
    return {field.name: (field.metadata or {}).get(b"doc", b"").decode() for field in schema}


def library(name: str, extra: str = "schedlab[pandas]' or 'schedlab[polars]", more: str = "") -> Any:
    """Import a library that schedlab does not need by itself."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"this needs {name.split('.')[0]}: pip install '{extra}'{more}") from None
