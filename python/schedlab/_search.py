"""Sweeps and searches over settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _backend, _native
from ._progress import bar
from ._recording import Recording, input_of, texts
from ._space import Span, Values, grid, values, written
from ._table import ArrowTable, FilesTable, Table, library

if TYPE_CHECKING:
    import matplotlib.axes

# Settings of one task: fixed, so that no result depends on the number of workers.
_BATCH = 8
# Points that an optimizer proposes before it hears of any of them: fixed for the same reason.
_ASKED = 16
_NO_SETTING = "unchanged"


def sweep(
    inputs: Recording | str | PathLike[str] | Sequence[Recording | str | PathLike[str]],
    *,
    space: Mapping[str, Values] | None = None,
    settings: str | Iterable[str] | None = None,
    metrics: str | Iterable[str] = (),
    seeds: int = 5,
    seed: int | None = None,
    duration: int | str | None = None,
    replay: str | None = None,
    backend: str = "threads",
    out: str | PathLike[str] | None = None,
    progress: bool | None = None,
) -> Table:
    """Run every setting on every input, and return their measurements: one table, in the order of the grid.

    ``space`` maps a dimension to its values, such as ``{"sysbench nice": range(0, 20), "base_slice_ns": ["1ms", "3ms"],
    "scheduler": ["linux-6.1", "linux-7.2"]}``: every combination is run, the last dimension changes first. ``settings`` is a list
    instead, of variants such as ``"sysbench policy=idle"``. ``metrics`` are the numbers that the table holds, such as
    ``"redis-server share"``; none: all. The columns are those of :meth:`Study.rows` behind ``input`` and ``setting`` (0: the
    unchanged row, 1: the first setting, ...). ``replay`` is that of :func:`compare`.

    ``backend``: ``"threads"``, ``"serial"``, or ``"ray"`` (``pip install 'schedlab[ray]'``; a cluster that ``ray.init`` has joined is used).
    The table is the same. ``out`` is a folder for Parquet files, one for each part: then no more than the parts that run are in
    memory, and what is taken from the table is read from there. ``progress`` is that of :func:`compare`.
    """
    _backend.check(backend)
    if (space is None) == (settings is None):
        raise ValueError("give space or settings")
    points = grid(space) if space is not None else [(None, setting) for setting in texts(settings or ())]
    if not points:
        raise ValueError("settings: the list is empty")
    if not 1 <= seeds <= 1000:
        raise ValueError("seeds: 1 to 1000")
    single = isinstance(inputs, (Recording, str, PathLike))
    named = [input_of(one, duration) for one in ([inputs] if single else inputs)]
    more = (texts(metrics), seeds, seed)
    pyarrow = library("pyarrow", "schedlab[pandas]")
    with bar("sweeping", progress) as report:
        parts = _parts(named, points, more, (replay, backend), report)
        if out is None:
            return ArrowTable(pyarrow.concat_tables(parts).combine_chunks())
        return _in_files(parts, Path(out))


def _in_files(parts: Iterator[Any], folder: Path) -> FilesTable:
    """Write each part when it is there, and return the table that the files hold."""
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.glob("part-*.parquet")):
        raise ValueError(f"{folder} has parts of another sweep: name an empty folder")
    files = []
    for number, part in enumerate(parts):
        files.append(folder / f"part-{number:06}.parquet")
        pyarrow.parquet.write_table(part, files[-1], compression="zstd")
    return FilesTable(files)


def _parts(
    named: list[tuple[str, int | None, int | None]],
    points: list[tuple[str | None, str]],
    more: tuple[Any, ...],
    how: tuple[str | None, str],
    report: Callable[[int, int], None] | None,
) -> Iterator[Any]:
    """Yield the measurements of each batch."""
    import pyarrow
    import pyarrow.compute

    replay, backend = how
    begins = range(0, len(points), _BATCH)
    seeds = more[1]
    for place, (name, *part) in enumerate(named):
        calls = (("rows", points[begin : begin + _BATCH], *more) for begin in begins)
        for begin, native in zip(begins, _backend.run(backend, name, ("NativeSweep", *part, replay), calls), strict=True):
            rows = pyarrow.table(native)
            if report is not None:
                done = place * len(points) + min(begin + _BATCH, len(points))
                report(done * seeds, len(named) * len(points) * seeds)
            row = rows.column("row")
            if begin:
                # The unchanged row is in the first batch.
                mine = pyarrow.compute.greater(row, 0)
                rows, row = rows.filter(mine), row.filter(mine)
            moved = pyarrow.compute.if_else(pyarrow.compute.greater(row, 0), pyarrow.compute.add(row, begin), row)
            rows = rows.drop_columns(["row"])
            rows = rows.add_column(0, "setting", moved)
            yield rows.add_column(0, "input", pyarrow.array([name] * len(rows), pyarrow.string()))


def tune(
    input: Recording | str | PathLike[str],
    *,
    goal: str,
    cost: str | Iterable[str] = (),
    space: Mapping[str, Values],
    trials: int = 100,
    seeds: int = 5,
    seed: int | None = None,
    duration: int | str | None = None,
    validate: Recording | str | PathLike[str] | Iterable[Recording | str | PathLike[str]] = (),
    serve: str | None = None,
    replay: str | None = None,
    sampler: str | None = None,
    backend: str = "threads",
    progress: bool | None = None,
) -> Tuned:
    """Search the settings of ``space`` for the one that serves ``goal`` best, as ``schedlab tune`` does, in any number of dimensions.

    ``goal`` is a number that is to become better (``"redis-server share"``), or to come within a bound
    (``"clients response p99 < 1ms"``); ``cost`` is what is not to become worse. ``sampler``: ``"tpe"`` or ``"nsga2"`` of Optuna
    (``pip install 'schedlab[tune]'``; the default is ``"nsga2"`` with a cost, else ``"tpe"``), or ``"even"``, which needs nothing and
    takes three dimensions: every combination, or points that fill the space. A point is first tried with one seed of its runs; the
    best go on to more, and the answer comes from ``seeds`` that the search has not seen. ``validate``: recordings on which it
    is to hold too. ``serve`` and ``replay`` are those of :func:`compare`. The same ``seed`` gives the same answer on every ``backend`` (see :func:`sweep`). ``progress`` is that of :func:`compare`.
    """
    _backend.check(backend)
    if not 1 <= seeds <= 1000 or not 1 <= trials <= 5000:
        raise ValueError("seeds: 1 to 1000; trials: 1 to 5000")
    costs = texts(cost)
    axes = {what: values(what, of) for what, of in space.items()}
    dimensions = [written(what, of) for what, of in axes.items()]
    name, begin, length = input_of(input, duration)
    make = ("NativeSearch", goal, costs, dimensions, seeds, seed, begin, length, serve, replay)
    search = _native.NativeSearch(name, *make[1:])
    others = _recordings(validate)
    jobs = 1 if backend == "serial" else 0
    if sampler == "even":
        return Tuned(search.search(trials, others, jobs))
    study, how = _study(sampler, len(costs), 1 if seed is None else seed)
    tried: list[list[str]] = []
    losses: list[list[float] | None] = []
    with bar("searching", progress) as report:
        while len(tried) < trials:
            count = min(_ASKED, trials - len(tried))
            asked = [study.ask() for _ in range(count)]
            chosen = [[_suggested(trial, what, of) for what, of in axes.items()] for trial in asked]
            calls = (("losses", chosen[begin : begin + _BATCH]) for begin in range(0, count, _BATCH))
            found = [one for part in _backend.run(backend, name, make, calls) for one in part]
            for trial, loss in zip(asked, found, strict=True):
                _tell(study, trial, loss)
            tried += chosen
            losses += found
            if report is not None:
                report(len(tried), trials)
    return Tuned(search.finish(tried, losses, how, others, jobs))


def _recordings(given: Recording | str | PathLike[str] | Iterable[Recording | str | PathLike[str]]) -> list[str]:
    """Return the files of whole recordings."""
    named = [input_of(one) for one in ([given] if isinstance(given, (Recording, str, PathLike)) else given)]
    if any(part != [None, None] for _, *part in named):
        raise ValueError("validate: a part of a recording cannot be given: give the whole one")
    return [name for name, *_ in named]


def _study(sampler: str | None, costs: int, seed: int) -> tuple[Any, str]:
    """Return Optuna's study, and the name of its sampler."""
    how = sampler or ("nsga2" if costs else "tpe")
    if how not in ("tpe", "nsga2"):
        raise ValueError(f"sampler {how!r}: use 'tpe', 'nsga2' or 'even'")
    optuna = library("optuna", "schedlab[tune]", "; sampler='even' needs nothing")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    made = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, n_startup_trials=_ASKED),
        "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed, population_size=_ASKED),
    }[how]()
    return optuna.create_study(directions=["minimize"] * (1 + costs), sampler=made), how


def _suggested(trial: Any, what: str, of: Span | list[str]) -> str:
    if isinstance(of, list):
        numbers = [int(value) for value in of] if all(_is_whole(value) for value in of) else []
        if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
            return str(trial.suggest_int(what, numbers[0], numbers[-1]))
        return of[trial.suggest_categorical(what, list(range(len(of))))]
    return of.text(trial.suggest_float(what, of.low, of.high, log=of.by_factors))


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdigit()


def _tell(study: Any, trial: Any, losses: list[float] | None) -> None:
    """Hand on the losses without the last, which is no goal: how mild a setting is."""
    import math

    import optuna

    if losses is None or not all(math.isfinite(loss) for loss in losses[:-1]):
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(trial, losses[:-1])


class Setting:
    """A setting that was tried."""

    def __init__(self, tried: Mapping[str, Any]) -> None:
        self._tried = tried

    @property
    def text(self) -> str:
        """What is set, as ``compare`` takes it; behind its scheduler, where that is another one."""
        return self._tried["setting"]

    @property
    def mildness(self) -> int:
        """How much it asks of the machine's owner, from 0 (nothing) to 7 (another system)."""
        return self._tried["mildness"]

    @property
    def values(self) -> list[float | None]:
        """Its numbers: the goal, then the costs."""
        return [None if cell is None else cell["value"]["median"] for cell in self._tried["figures"]]

    def deploy(self, format: str = "shell") -> str:
        """Return what makes it without schedlab: ``shell``, ``systemd``, ``kubernetes`` or ``xl``."""
        return deployed(self._tried.get("deploy"), format)

    def __repr__(self) -> str:
        """Say what it is."""
        return f"<Setting {self.text}>"


def deployed(deployment: Mapping[str, Any] | None, format: str) -> str:
    """Return one form of a deployment, or say which it has."""
    formats = ("shell", "systemd", "kubernetes", "xl")
    if format not in formats:
        raise ValueError(f"format {format!r}: use one of {', '.join(formats)}")
    if deployment is None:
        raise ValueError("nothing is set")
    if not deployment.get(format):
        has = [name for name in formats if deployment.get(name)]
        raise ValueError(f"this setting ({deployment['what']}) has {', '.join(has) or 'no such form'}")
    return deployment[format]


class Tuned:
    """What a search found. Made by :func:`tune`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._result: dict[str, Any] = json.loads(text)

    @property
    def result(self) -> dict[str, Any]:
        """The whole result, in the schema ``schedlab-tune/1`` (``docs/tune.md``)."""
        return json.loads(self._text)

    @property
    def verdict(self) -> str:
        """What it comes to, and how sure that is: two sentences."""
        return f"{self._result['verdict']['outcome']} {self._result['verdict']['certainty']}"

    @property
    def trusted(self) -> bool:
        """Whether the simulation reproduces the recording; True for scenarios."""
        return self._result["trusted"]

    @property
    def best(self) -> Setting | None:
        """The mildest setting near the best; None: none gains for certain."""
        return self._at("recommended")

    @property
    def largest_gain(self) -> Setting | None:
        """The setting with the largest certain gain."""
        return self._at("largest_gain")

    def _at(self, key: str) -> Setting | None:
        place = self._result[key]
        return None if place is None else Setting(self._result["settings"][place])

    @property
    def confirm_command(self) -> str | None:
        """The command line that tries the setting on the real threads; None: see ``result["confirm"]["why_not"]``."""
        confirm = self._result["confirm"]
        if confirm is None or confirm["arguments"] is None:
            return None
        return shlex.join(["schedlab", "confirm", *confirm["arguments"], "--", *(confirm["command"] or ["COMMAND"])])

    @property
    def validated(self) -> dict[str, str]:
        """For each recording that the search did not see: whether the best setting ``holds`` there."""
        return {one["file"]: (one["holds"] or ["cannot tell"])[0] for one in self._result["validated"]}

    def pareto(self) -> Table:
        """Return the unchanged row and the settings that no other is better than: each number that was asked for, between its low and its high."""
        rows = [one for place, one in enumerate(self._result["settings"]) if one["front"] or place == 0]
        columns: dict[str, list[Any]] = {"setting": [one["setting"] for one in rows]}
        for place, asked in enumerate(self._result["asked"]):
            name = f"{asked['subject']} {asked['metric']}"
            cells = [one["figures"][place] for one in rows]
            columns[name] = [None if cell is None else cell["value"]["median"] for cell in cells]
            bars = [None if cell is None else _bar(cell) for cell in cells]
            columns[f"{name} low"] = [bar and bar["low"] for bar in bars]
            columns[f"{name} high"] = [bar and bar["high"] for bar in bars]
            columns[f"{name} judgement"] = [
                None if cell is None or cell["change"] is None else cell["change"]["judgement"] for cell in cells
            ]
        columns["mildness"] = [one["mildness"] for one in rows]
        return ArrowTable(library("pyarrow", "schedlab[pandas]").table(columns))

    def plot(self, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Draw the goal against the first cost, with errors; the recommended setting has its name."""
        asked = self._result["asked"]
        if len(asked) < 2:
            raise ValueError("a picture needs a goal and a cost: tune(..., cost='sysbench share')")
        if ax is None:
            ax = library("matplotlib.pyplot", "schedlab[notebook]").subplots()[1]
        for place, one in enumerate(self._result["settings"]):
            cells = one["figures"][:2]
            if None in cells:
                continue
            x, y = (cell["value"]["median"] for cell in cells)
            chosen = place == self._result["recommended"]
            color = "tab:red" if chosen else "black" if place == 0 else "tab:blue" if one["front"] else "lightgray"
            ax.errorbar(x, y, xerr=_error(cells[0]), yerr=_error(cells[1]), fmt="o", color=color, capsize=2)
            if chosen or place == 0:
                ax.annotate(one["setting"], (x, y), textcoords="offset points", xytext=(6, 6))
        ax.set_xlabel(f"{asked[0]['subject']} {asked[0]['metric']}")
        ax.set_ylabel(f"{asked[1]['subject']} {asked[1]['metric']}")
        return ax

    def __repr__(self) -> str:
        """Say what it comes to."""
        return f"<Tuned: {self.verdict}>"


def _bar(cell: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the interval of a number: that of its error, or else what the seeds had."""
    return cell.get("error_bar") or cell["value"]


def _error(cell: Mapping[str, Any]) -> list[list[float]]:
    """Return how far the interval reaches below and above the value, as matplotlib wants it."""
    value, bar = cell["value"]["median"], _bar(cell)
    return [[value - bar["low"]], [bar["high"] - value]]
