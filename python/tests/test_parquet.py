"""The Parquet files of the command line, read by pyarrow and polars, against its CSV."""

from __future__ import annotations

import csv
import os
import subprocess
from pathlib import Path

import polars
import pyarrow
import pyarrow.parquet
import pytest

import schedlab as sl

ROOT = Path(__file__).resolve().parents[2]
RECORDING = str(ROOT / "recordings" / "redis-other-other-closed8.slt")
PROGRAM = os.environ["SCHEDLAB"]


def run(*arguments: str) -> bytes:
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    run("export", RECORDING, "--parquet", str(folder / "parquet"), "--csv", str(folder / "csv"))
    return folder


@pytest.mark.parametrize("name", ["events", "tasks", "latencies", "activations", "slices", "migrations", "blame"])
def test_exported_tables_are_those_of_the_package(exported: Path, name: str) -> None:
    table = pyarrow.parquet.read_table(exported / "parquet" / f"{name}.parquet")
    ours = getattr(sl.open(RECORDING), name).to_arrow()
    assert table.equals(ours)
    assert all(field.metadata[b"doc"] for field in table.schema)
    assert polars.read_parquet(exported / "parquet" / f"{name}.parquet").shape == table.shape


@pytest.mark.parametrize(("name", "file"), [("events", "events"), ("tasks", "tasks"), ("latencies", "waits")])
def test_exported_tables_hold_what_csv_holds(exported: Path, name: str, file: str) -> None:
    table = pyarrow.parquet.read_table(exported / "parquet" / f"{name}.parquet")
    with (exported / "csv" / f"{file}.csv").open(newline="") as text:
        lines = list(csv.reader(text))
    assert lines[0] == table.column_names
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    # A spreadsheet must not take a name for a formula: the file has an apostrophe before it.
    assert [[cell.removeprefix("'") for cell in line] for line in lines[1:]] == [[_text(cell) for cell in row] for row in rows]


def _text(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("analysis", ["--tasks", "--latency", "--worst=20", "--timehist", "--blame", "--migrations", "--slices", "--states"])
def test_an_analysis_holds_what_its_csv_holds(tmp_path: Path, analysis: str) -> None:
    path = tmp_path / "table.parquet"
    path.write_bytes(run("show", RECORDING, analysis, "--to", "500ms", "--format", "parquet"))
    table = pyarrow.parquet.read_table(path)
    # The first of the tables.
    text = run("show", RECORDING, analysis, "--to", "500ms", "--format", "csv").decode().split("\n\n")[0]
    lines = list(csv.reader(text.splitlines()))
    heading = lines[0]
    columns = {name: [line[place] for line in lines[1:] if line != heading] for place, name in enumerate(heading)}
    if analysis.startswith("--worst"):
        # Its second table is between its rows.
        columns = {name: values[:1] for name, values in columns.items()}
        table = table.slice(0, 1)
    for name, cells in columns.items():
        if name.endswith("_interval_ns"):
            of = name.removesuffix("_interval_ns")
            ends = zip(table[f"{of}_low_ns"].to_pylist(), table[f"{of}_high_ns"].to_pylist(), strict=True)
            ours = ["" if low is None and high is None else f"{_text(low)}..{_text(high)}" for low, high in ends]
            assert ours == ["" if cell == ".." else cell for cell in cells], name
            continue
        values = table[name].to_pylist()
        if pyarrow.types.is_floating(table.schema.field(name).type):
            assert values == [None if cell == "" else float(cell) for cell in cells], name
        else:
            assert [_text(value) for value in values] == [cell.removeprefix("'") for cell in cells], name
    assert len(table) > 0


def test_rows_of_a_comparison(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    variant = "batch idle: sysbench policy=idle"
    run("compare", RECORDING, "--variant", variant, "--seeds", "2", "--format", "parquet", "-o", str(path))
    study = sl.compare(RECORDING, variants={"batch idle": "sysbench policy=idle"}, seeds=2)
    assert pyarrow.parquet.read_table(path).equals(study.rows().to_arrow())
