"""The notebooks: two are run, and say again what is stored in them; all four have their pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def texts(book: Any) -> list[str]:
    """Return what the cells print and the tables that they end with; pictures are bytes of matplotlib's version."""
    found = []
    for cell in book.cells:
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream":
                found.append(output["text"])
            elif output["output_type"] == "execute_result":
                found.append(output["data"]["text/plain"])
    return found


@pytest.mark.parametrize("name", ["1-slow-server", "3-real-time"])
def test_a_notebook_says_what_it_said(name: str) -> None:
    path = FOLDER / f"{name}.ipynb"
    stored = nbformat.read(path, as_version=4)
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": FOLDER}}).execute()
    assert texts(book) == texts(stored)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_what_came_out(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    assert path.stat().st_size < 600_000
    assert all(cell.get("execution_count") for cell in book.cells if cell["cell_type"] == "code")


def test_there_are_four() -> None:
    assert len(NOTEBOOKS) == 4
