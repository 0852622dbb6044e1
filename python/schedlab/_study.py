"""Comparisons."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from html import escape
from os import PathLike, fspath
from typing import Any

from . import _html, _native
from ._progress import bar
from ._recording import Recording, input_of, texts
from ._table import Table, library
from ._time import nanoseconds


def schedulers() -> dict[str, str]:
    """Return every scheduler with one line about it."""
    return dict(_native.schedulers())


def scenarios() -> list[str]:
    """Return the names of the gallery's scenarios."""
    return _native.scenarios()


def compare(
    input: Recording | str | PathLike[str],
    *,
    # Made by `cargo xtask docs` from OPTIONS (crates/study/src/compare/request.rs).
    schedulers: str | Iterable[str] = (),
    kernel_btf: str | PathLike[str] | None = None,
    variants: Mapping[str, str | PathLike[str]] | None = None,
    scans: str | Iterable[str] = (),
    seed: int | None = None,
    seeds: int | None = None,
    duration: int | str | None = None,
    begin: int | str | None = None,
    end: int | str | None = None,
    around: str | PathLike[str] | None = None,
    costs: str | PathLike[str] | None = None,
    rows: str | PathLike[str] | None = None,
    recorded_under: str | PathLike[str] | None = None,
    replay: str | PathLike[str] | None = None,
    checks: Mapping[str, str | PathLike[str]] | None = None,
    client_log: str | PathLike[str] | None = None,
    serve: str | PathLike[str] | None = None,
    by: str | PathLike[str] | None = None,
    fail_if: str | Iterable[str] = (),
    jobs: int | None = None,
    # End of what is made.
    progress: bool | None = None,
) -> Study:
    """Play a recording or a scenario under schedulers and variants, as ``schedlab compare`` does.

    ``variants`` maps a name to settings, such as ``{"batch idle": "sysbench policy=idle"}``, and ``checks`` a variant to a recording of it.
    Where several texts are taken, one may stand alone: ``schedulers="linux-6.18"``. Of a recording a part may be given: ``r["1s":"3s"]``.
    The options are those of the command:

    * ``schedulers``: Simulate this scheduler with its knobs, such as linux-6.18:base_slice_ns=6ms
    * ``kernel_btf``: Lay out the types of schedulers in BPF (--scheduler
      bpf:FILE.bpf.o?option=value) as this kernel does: /sys/kernel/btf/vmlinux of a kernel with
      sched_ext, or a vmlinux
    * ``variants``: Try this variant: 'NAME: TASK policy=idle'
    * ``scans``: Try a setting with many values, as a table and a curve: 'sysbench nice=0..19',
      'base_slice_ns=0.7ms,1.4ms'
    * ``seed``: Begin with this seed of the random streams
    * ``seeds``: Run this many seeds: more give narrower intervals [default: 5 for recordings, else
      what the scenario says]
    * ``duration``: Simulate this long, such as 2s; of a recording its first 2s are read, as if it
      had ended there [default: the whole recording, or what the scenario says]
    * ``begin``: Simulate the part of the recording that begins at this time since its start, such
      as 2s, with what was pending then
    * ``end``: End the part at this time since the start of the recording [default: its end]
    * ``around``: Simulate the part around this time, or around a wait by its rank in ``schedlab
      show --worst`` (worst, worst:3; with --serve of the server); --for is its length [default: 2s]
    * ``costs``: Use this cost preset instead of the scenario's costs, such as modern-vm or
      this-machine (``schedlab calibrate``)
    * ``rows``: Simulate all rows of the scenario, or only its first one and those of the options
      (--variant, --scan, --scheduler): all or asked [default: all]
    * ``recorded_under``: Represent the recorded kernel by this scheduler [default: by the kernel's
      version]
    * ``replay``: Replay the recording from its messages, or from the wakeups between its tasks:
      messages, wakeups, or auto, which takes the messages of a recording that has lost less than a
      hundredth of them, where they reproduce it or the wakeups do not [default: auto]
    * ``checks``: Print predicted against recorded, with this recording of a variant on the real
      machine: 'VARIANT=FILE'
    * ``client_log``: Read requests a second from what a load generator printed while its server was
      recorded (wrk, ab, redis-benchmark, pgbench, sysbench and others: docs/exchange-formats.md),
      and predict them [default: the busiest program that is not an endless loop]
    * ``serve``: Answer for this server: a program, a pid, a control group (/path), a unit
      (NAME.service), a pod (pod:NAME, pod:LABEL=VALUE or pod:UID) or container:ID. Its numbers come
      first, and what does not delay it does not count
    * ``by``: Take tasks together by this: name, process, cgroup, unit (of systemd), container, pod
      (of Kubernetes) or guest (of KVM); figures and gates are of these [default: guest in a
      recording that has some, else name]
    * ``fail_if``: Fail (exit 1) when this holds: 'redis-server latency p99 > 1ms'
    * ``jobs``: Use this many worker threads; 0 = one per CPU. The result does not depend on it
      [default: 0]

    Ctrl-C ends it at once. ``progress`` shows a bar of tqdm; None: in terminals, and in notebooks that have ipywidgets.
    """
    given = {key: value for key, value in locals().items() if key not in ("input", "progress")}
    name, first, length = input_of(input, duration)
    if first is not None:
        if begin is not None or end is not None or around is not None:
            raise ValueError("begin, end and around have a meaning for whole recordings, and this is a part of one")
        given["begin"] = first
    if duration is None:
        given["duration"] = length
    words = [repr(name), *(f"{key}={value!r}" for key, value in given.items() if value)]
    call = f"schedlab.compare({', '.join(words)})"
    options = [
        (key, text)
        for key, shape, between in _native.compare_options()
        for text in _texts(shape, between, given[key])
    ]
    with bar("comparing", progress) as report:
        native = _native.compare(name, options, report)
    return Study(native, call)


def _texts(shape: str, between: str, value: Any) -> list[str]:
    """Return the values of an option as the command line has them."""
    if value is None:
        return []
    if shape == "named":
        return [f"{key}{between}{fspath(one)}" for key, one in value.items()]
    if shape == "texts":
        return texts(value)
    if shape == "time":
        return [f"{nanoseconds(value)}ns"]
    return [str(value) if shape == "number" else fspath(value)]


def diff(
    before: Recording | str | PathLike[str],
    after: Recording | str | PathLike[str],
    *,
    fail_if: str | Iterable[str] = (),
    least: float = 0.05,
    seed: int = 1,
) -> dict[str, Any]:
    """Compare two recordings, two folders of recordings made in turns, or two results, as ``schedlab diff --json`` does.

    ``fail_if`` are gates such as ``"redis-server latency p99 > +20%"``; changes below ``least`` are equal.
    """
    paths = []
    for one in (before, after):
        path, *part = input_of(one)
        if part != [None, None]:
            raise ValueError("a part of a recording cannot be compared with another recording: give the whole one")
        paths.append(path)
    return json.loads(_native.diff(paths[0], paths[1], texts(fail_if), least, seed))


class Study:
    """The result of a comparison. Made by :func:`compare`."""

    def __init__(self, native: _native.NativeStudy, call: str) -> None:
        self._native = native
        self._call = call

    @property
    def verdict(self) -> str:
        """What it comes to, and how sure that is: two sentences."""
        return " ".join(self._native.verdict)

    @property
    def result(self) -> dict[str, Any]:
        """The whole result, in the schema ``schedlab-compare/1`` (``docs/result-schema.md``)."""
        return json.loads(self._native.json())

    @property
    def trusted(self) -> bool:
        """Whether the simulation reproduces the recording; True for scenarios."""
        replay = self.result["self_replay"]
        return replay is None or replay["trusted"]

    def rows(self) -> Table:
        """Return the measurements of every row and subject, with their errors."""
        return Table(self._native.rows())

    def expectations(self) -> Table:
        """Return the expectations of a scenario, and what came of them."""
        return Table(self._native.expectations())

    def report(self, path: str | PathLike[str]) -> None:
        """Write a page: one HTML file with charts, without other files, as ``schedlab compare --report`` writes it.

        Distributions and schedules are observed in a second run, which gives the same numbers.

        >>> compare("two-hogs", duration="1500ms").report("/tmp/two-hogs.html")
        """
        made_on = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
        self._native.report(fspath(path), self._call, made_on)

    def deploy(self, format: str = "shell") -> str:
        """Return what makes the recommended row without schedlab: ``shell``, ``systemd``, ``kubernetes`` or ``xl``."""
        from ._search import deployed

        result = self.result
        place = result["verdict"].get("row")
        if place is None:
            raise ValueError("no setting that was tried gains anything for certain")
        return deployed(result["rows"][place].get("deploy"), format)

    def plot(self, subject: str | None = None, quantity: str = "latency", ax: Any = None) -> Any:
        """Draw the percentile ladder of a subject, a line for each row: p50, p99, ... up to the maximum.

        ``quantity`` is ``"latency"``, ``"response"`` or ``"wait"``; ``subject`` is that of the first figure of the headline otherwise.
        """
        if ax is None:
            ax = library("matplotlib.pyplot", "schedlab[notebook]").subplots()[1]
        result = self.result
        subject = subject or (result["headline"][0]["subject"] if result["headline"] else None)
        order = ["p50", "p90", "p95", "p99", "p99.5", "p99.9", "p99.99", "max"]
        drawn: list[str] = []
        for row in result["rows"]:
            cells = [cell for one in row["subjects"] if one["name"] == subject for cell in one["cells"]]
            found = {cell["metric"]: cell["value"]["median"] / 1e3 for cell in cells}
            ladder = [step for step in order if f"{quantity} {step}" in found]
            if ladder:
                label = f"{row['scheduler']}, {row['variant']}"
                ax.plot(ladder, [found[f"{quantity} {step}"] for step in ladder], marker="o", label=label)
                drawn.append(label)
        if not drawn:
            names = sorted({one["name"] for row in result["rows"] for one in row["subjects"]})
            raise ValueError(f"{subject} has no {quantity}; subjects are {', '.join(names)}")
        ax.set_yscale("log")
        ax.set_ylabel(f"{quantity} of {subject} (us)")
        ax.legend()
        return ax

    def __repr__(self) -> str:
        """Say what it comes to."""
        return f"<Study: {self.verdict}>"

    def _repr_html_(self) -> str:
        """Show in a notebook the verdict, and the tables that the page of :meth:`report` shows first."""
        outcome, certainty = (escape(part) for part in self._native.verdict)
        shown = [f"<p><strong>{outcome}</strong><br>{certainty}</p>"]
        for table in json.loads(self._native.open_tables_json()):
            heads = [(column["name"], "") for column in table["columns"]]
            rows = [
                [cell["text"] if cell["head"] else (cell["text"], cell["note"]) for cell in row]
                for row in table["rows"]
            ]
            shown.append(_html.table(heads, rows, table["caption"]))
        return "".join(shown)
