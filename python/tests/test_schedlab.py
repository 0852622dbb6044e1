"""The package against the command line, and against the libraries that take its tables."""

from __future__ import annotations

import csv
import html
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import schedlab as sl

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "recordings" / "redis-other-other-closed8.slt"
PROGRAM = os.environ["SCHEDLAB"]
TABLES = ["events", "tasks", "latencies", "activations", "slices", "migrations", "blame"]


@pytest.fixture(scope="module")
def recording() -> sl.Recording:
    return sl.open(RECORDING)


def run(*arguments: str) -> str:
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


@pytest.mark.parametrize(("table", "file"), [("events", "events"), ("tasks", "tasks"), ("latencies", "waits")])
def test_frames_agree_with_csv(recording: sl.Recording, tmp_path: Path, table: str, file: str) -> None:
    run("export", str(RECORDING), "--csv", str(tmp_path))
    frame = getattr(recording, table).to_pandas()
    with (tmp_path / f"{file}.csv").open(newline="") as text:
        lines = list(csv.reader(text))
    assert lines[0] == list(frame.columns)
    assert len(lines) - 1 == len(frame)

    def written(value: object) -> str:
        if value is pandas.NA or value is None:
            return ""
        return str(value).lower() if isinstance(value, bool) else str(value)

    for line, row in zip(lines[1:], frame.itertuples(index=False, name=None), strict=True):
        # A spreadsheet must not take a name for a formula: the file has an apostrophe before it.
        assert [cell.removeprefix("'") for cell in line] == [written(value) for value in row]


def test_rows_agree_with_json() -> None:
    variants = {"batch idle": "sysbench policy=idle"}
    study = sl.compare(sl.open(RECORDING), variants=variants, seeds=2)
    printed = json.loads(
        run("compare", str(RECORDING), "--variant", "batch idle: sysbench policy=idle", "--seeds", "2", "--json")
    )
    assert study.result["rows"] == printed["rows"]
    outcome, certainty = printed["verdict"]["outcome"], printed["verdict"]["certainty"]
    assert study.verdict == f"{outcome} {certainty}"
    cells = [
        (index, subject["name"], cell["metric"], cell["value"]["median"])
        for index, row in enumerate(printed["rows"])
        for subject in row["subjects"]
        for cell in subject["cells"]
    ]
    frame = study.rows().to_polars()
    assert frame.select("row", "subject", "metric", "value").rows() == cells
    assert study.trusted is printed["self_replay"]["trusted"]


def test_expectations_of_a_scenario() -> None:
    frame = sl.compare("two-hogs").expectations().to_pandas()
    assert len(frame) > 0
    assert frame["holds"].all()


def test_jobs_do_not_change_the_result(recording: sl.Recording) -> None:
    one, two = (sl.compare(recording, seeds=2, jobs=jobs).result for jobs in (1, 2))
    assert one == two


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_not_copied(recording: sl.Recording, name: str) -> None:
    table = getattr(recording, name)
    assert len(table) > 0

    def addresses(taken: pyarrow.Table) -> list[int]:
        chunks = [column.chunk(0) for column in taken.columns]
        return [buffer.address for chunk in chunks for buffer in chunk.buffers() if buffer is not None]

    first, second = pyarrow.table(table), pyarrow.table(table)
    assert addresses(first) == addresses(second)
    assert addresses(first)
    numbers = [column for column in first.column_names if pyarrow.types.is_int64(first.schema.field(column).type)]
    series = table.to_pandas()[numbers[0]]
    assert series.array.__arrow_array__().chunk(0).buffers()[1].address == first[numbers[0]].chunk(0).buffers()[1].address


def test_polars_pandas_and_parquet_hold_the_same(recording: sl.Recording, tmp_path: Path) -> None:
    table = recording.latencies
    waits = table.to_pandas()["wait_ns"].tolist()
    assert table.to_polars()["wait_ns"].to_list() == waits
    assert polars.DataFrame(table).shape == (len(table), len(table.columns))
    table.to_parquet(tmp_path / "waits.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "waits.parquet")["wait_ns"].to_pylist() == waits


def test_columns_say_what_they_mean(recording: sl.Recording) -> None:
    for name in TABLES:
        columns = getattr(recording, name).columns
        assert all(columns.values()), name
    page = (ROOT / "docs" / "tables.md").read_text()
    assert recording.latencies.columns["wait_ns"] in page


def test_a_part_has_the_events_of_its_time(recording: sl.Recording) -> None:
    part = recording["0.5s":"1.5s"]
    assert part.duration_ns == 10**9
    assert part.window_ns == (500_000_000, 1_500_000_000)
    assert part[10**8 :].window_ns == (600_000_000, 1_500_000_000)
    whole = recording.events.to_pandas()
    inside = whole[(whole["at_ns"] >= 500_000_000) & (whole["at_ns"] <= 1_500_000_000)]
    events = part.events.to_pandas()
    # A part begins with what was pending then.
    pending = events["at_ns"] == 0
    assert pending.any()
    assert (events["at_ns"][~pending] + 500_000_000).tolist() == inside["at_ns"].tolist()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sl.open(ROOT / "Makefile"), "Makefile"),
        (lambda: sl.compare("two-hogz"), "did you mean the scenario `two-hogs`"),
        (lambda: sl.compare("two-hogs", schedulers=["linux-9"]), "linux-9"),
        (lambda: sl.compare("two-hogs", variants={"x": "nobody policy=idle"}), "nobody"),
        (lambda: sl.compare("two-hogs", seeds=0), "seeds: must be 1 to 1000"),
        (lambda: sl.compare("two-hogs", duration="5"), "with its unit"),
        (lambda: sl.open(RECORDING)["9s":], "there is nothing"),
        (lambda: sl.compare(sl.open(RECORDING)["1s":], around="1s"), "this is a part of one"),
        (lambda: sl.compare(RECORDING, begin="99s"), "begin 99.0s: the recording is only"),
        (lambda: sl.compare(RECORDING, begin="1s", end="500ms"), "must be later than"),
        (lambda: sl.diff(sl.open(RECORDING)["1s":], RECORDING), "a part of a recording"),
        (lambda: sl.compare(sl.scenario("two-hogs", duration="1s")), "give the scenario's name"),
        (lambda: sl.scenario("two-hogz"), "did you mean the scenario `two-hogs`"),
        (lambda: sl.scenario(RECORDING), "read it with schedlab.open"),
        (lambda: sl.scenario("two-hogs", variant="x"), "this scenario has"),
        (lambda: sl.scenario("two-hogs", scheduler="linux-9"), "linux-9"),
        (lambda: sl.scenario("two-hogs", duration="0s"), "longer than 0"),
        (lambda: sl.compare("two-hogs", duration="1s", seeds=1), "duration 1.00s: must be longer than the warm-up"),
        (lambda: sl.compare("two-hogs", variants={"x": "nobody policy=idle"}), "^variants 'x"),
        (lambda: sl.compare(RECORDING, duration="300ms", fail_if="redis-server share > +5%"), "^fail_if '.*(variants, schedulers"),
        (lambda: sl.compare("two-hogs", replay="wakeups"), "^replay has a meaning only for recordings"),
        (lambda: sl.compare(RECORDING, serve="nginx"), "^serve nginx: no task"),
        (lambda: sl.compare(RECORDING, replay="messages"), "with `schedlab record --messages on` .*(replay wakeups"),
        (lambda: sl.compare(RECORDING, duration="1h"), "^duration 3600s: the recording is only"),
        (lambda: sl.compare(sl.open(RECORDING)[:"1s"], duration="2s"), "only 1 s long"),
        (lambda: sl.scenario("two-hogs", variant="x"), "^variant x: this scenario has"),
    ],
)
def test_bad_input_is_a_value_error_that_teaches(call, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")) as caught:
        call()
    message = str(caught.value).strip()
    assert "\n" not in message
    # What is between backticks is a command line.
    assert not [part for part in message.split("`")[::2] if "--" in part], message


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: sl.open(ROOT / "no-such-file.slt"), FileNotFoundError),
        (lambda: sl.open_many([RECORDING, ROOT / "no-such-file.slt"]), FileNotFoundError),
        (lambda: sl.open_many(ROOT / "no-such-*.slt"), FileNotFoundError),
        (lambda: sl.compare(ROOT / "no-such-file.slt"), FileNotFoundError),
        (lambda: sl.compare(RECORDING, seeds=1, duration="300ms", checks={"x": ROOT / "no-such-file.slt"}, variants={"x": "sysbench nice=1"}), FileNotFoundError),
        (lambda: sl.sweep(ROOT / "no-such-file.slt", settings="sysbench nice=1"), FileNotFoundError),
        (lambda: sl.scenario(ROOT / "no-such-file.toml"), FileNotFoundError),
        (lambda: sl.diff(RECORDING, ROOT / "no-such-file.slt"), FileNotFoundError),
        (lambda: sl.compare(ROOT), IsADirectoryError),
        (lambda: sl.compare("two-hogs", duration="1200ms", seeds=1).report("/no/such/folder/x.html"), FileNotFoundError),
    ],
)
def test_what_the_system_refuses_is_an_error_of_its_kind(call, kind: type[OSError]) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert "/" in str(caught.value), "it names the file"


def test_a_column_is_a_series(recording: sl.Recording) -> None:
    table = recording.latencies
    frame = table.to_pandas()
    assert table["wait_ns"].equals(frame["wait_ns"])
    assert table[["comm", "wait_ns"]].equals(frame[["comm", "wait_ns"]])
    assert list(table) == list(table.columns) and "wait_ns" in table
    with pytest.raises(KeyError, match="there is no column wait; the columns are began_ns"):
        table["wait"]
    with pytest.raises(TypeError, match="to_pandas"):
        table[0]  # type: ignore[call-overload]


def test_a_notebook_shows_the_first_rows(recording: sl.Recording) -> None:
    table = recording.latencies
    shown = table._repr_html_()
    assert f"{len(table):,} rows, the first 10" in shown and shown.count("<tr>") == 11
    assert html.escape(table.columns["wait_ns"]) in shown
    for name in TABLES:
        ours = getattr(recording, name)
        rows = [list(row) for row in zip(*(ours[column].head(3).tolist() for column in ours), strict=True)]
        plain = [[None if value is pandas.NA or value is pandas.NaT else value for value in row] for row in rows]
        assert ours._head(3) == plain, name


def test_a_notebook_shows_the_verdict_and_what_changes() -> None:
    study = sl.compare(RECORDING, variants={"batch idle": "sysbench policy=idle"}, seeds=2)
    shown = study._repr_html_()
    for part in study.verdict.split(". "):
        assert html.escape(part) in shown
    assert "batch idle" in shown and "redis-server" in shown and shown.count("<table>") == 2


def test_one_text_stands_for_a_list() -> None:
    one, listed = (sl.compare("two-hogs", schedulers=given, seeds=1, duration="1200ms") for given in ("linux-6.18", ["linux-6.18"]))
    assert one.result["rows"] == listed.result["rows"] and one.result["rows"][0]["scheduler"].startswith("linux-6.18")


def test_the_beginning_of_a_recording_is_simulated(recording: sl.Recording) -> None:
    part, first = (sl.compare(given, seeds=1, duration=length) for given, length in ((recording[:"1s"], None), (recording, "1s")))
    assert part.result == first.result


def test_a_part_of_a_recording_is_simulated(recording: sl.Recording) -> None:
    part, named = sl.compare(recording["500ms":"1s"], seeds=1), sl.compare(RECORDING, begin="500ms", end="1s", seeds=1)
    assert part.result == named.result
    assert part.result["input"]["window_ns"] == [500_000_000, 1_000_000_000]
    assert part.result["duration_ns"] == 500_000_000


def test_several_recordings_are_one_table(recording: sl.Recording) -> None:
    other = ROOT / "recordings" / "redis-other-other-closed.slt"
    many = sl.open_many([RECORDING, other])
    assert [one.path for one in many] == [str(RECORDING), str(other)] and len(many[:1]) == 1
    frame = many.latencies.to_pandas()
    counts = frame.groupby("recording", observed=True).size()
    assert counts[str(RECORDING)] == len(recording.latencies) and counts[str(other)] == len(many[1].latencies)
    assert all(many.latencies.columns.values())
    for pattern in (ROOT / "recordings" / "redis-other-other-closed*.slt", ROOT / "recordings"):
        assert str(other) in [one.path for one in sl.open_many(pattern)]


def test_activations_are_what_tasks_count(recording: sl.Recording) -> None:
    frame, tasks = recording.activations.to_pandas(), recording.tasks.to_pandas()
    assert frame.groupby("task").size().to_dict() == {
        task: count for task, count in zip(tasks["task"], tasks["activations"], strict=True) if count > 0
    }
    assert (frame["response_ns"] == frame["blocked_ns"] - frame["woke_ns"]).all()
    assert (frame["demand_ns"] <= frame["response_ns"]).all()
    served = frame[frame["comm"] == "redis-server"]
    assert "redload" in set(served["waker_comm"].dropna())
    woken = frame["waker"].notna()
    assert set(frame[woken]["kind"]) <= {"task", "inline-softirq", "created"}


def test_waits_have_the_control_group_of_their_task(recording: sl.Recording) -> None:
    waits, tasks = recording.latencies.to_pandas(), recording.tasks.to_pandas()
    group = dict(zip(tasks["task"], tasks["cgroup"], strict=True))
    assert waits["cgroup"].tolist() == [group[task] for task in waits["task"]]


def test_moments_are_timestamps(recording: sl.Recording) -> None:
    for name in ["events", "latencies", "activations", "slices", "migrations"]:
        field = getattr(recording, name).to_arrow().schema.field("wall_time")
        assert field.type == pyarrow.timestamp("ns", "UTC"), name


def test_moments_are_those_of_the_wall_clock(tmp_path: Path) -> None:
    file = tmp_path / "own.slt"
    before = time.time_ns()
    command = [PROGRAM, "record", "--backend", "own", "--no-calibration", "-o", str(file), "--", "sleep", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = time.time_ns()
    if not file.exists():
        pytest.skip(f"nothing can be recorded here: {done.stderr}")
    own = sl.open(file)
    frame = own.events.to_pandas()
    since_1970 = frame["wall_time"].astype("int64[pyarrow]")
    assert since_1970.between(before, after).all()
    assert (since_1970 - frame["at_ns"]).nunique() == 1
    # What was pending at the beginning of the part is an event of the part only.
    part = own["50ms":].events.to_pandas()
    later = part[part["at_ns"] > 0]["wall_time"].tolist()
    assert later and later == frame["wall_time"].tolist()[-len(later) :]


def test_the_version_is_that_of_the_program() -> None:
    assert run("--version").split()[1] == sl.__version__


def test_a_simulated_scenario_is_a_recording(tmp_path: Path) -> None:
    simulated = sl.scenario("two-hogs", scheduler="linux-6.1")
    shown = run("show", "two-hogs", "--scheduler", "linux-6.1", "--slices", "--format", "csv").splitlines()
    assert simulated.simulated and not sl.open(RECORDING).simulated
    slices = simulated.slices.to_polars()
    # The yes of the scenario, as the command line counts them: those at the ends of the run have no row.
    counted = sum(int(row["slices"]) for row in csv.DictReader(shown[: shown.index("")]))
    assert 0 <= counted - len(slices) <= 4
    assert sorted(set(slices["comm"].to_list())) == ["yes-1", "yes-2"]
    again = sl.scenario("two-hogs", scheduler="linux-6.1", seed=simulated_seed(), duration="5s")
    assert again.duration_ns == 5 * 10**9
    assert again.events.to_polars()["at_ns"].to_list() == simulated["0s":"4999999999ns"].events.to_polars()["at_ns"].to_list()
    # A file, and one of its variants.
    file = sl.scenario(ROOT / "scenarios/redis-batch.toml", variant="shared", duration="1s")
    assert "sysbench" in file.tasks.to_pandas()["comm"].tolist()


def simulated_seed() -> int:
    return sl.compare("two-hogs", duration="1100ms", seeds=1).result["seeds"][0]


def test_the_page_is_that_of_the_command_line(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.html", tmp_path / "theirs.html"
    study = sl.compare(RECORDING, variants={"batch idle": "sysbench policy=idle"}, seeds=2)
    study.report(ours)
    run("compare", str(RECORDING), "--variant", "batch idle: sysbench policy=idle", "--seeds", "2", "--report", str(theirs))

    def lines(path: Path) -> list[str]:
        # Which command made it, where, and of which commit: the same everywhere else.
        differs = ("schedlab.compare(", "schedlab compare ", "made on", "Python ", "commit", "Made by schedlab")
        text = path.read_text()
        # The nonce of its policy is a hash of the page.
        text = text.replace(text.partition("'nonce-")[2].partition("'")[0], "NONCE")
        return [line for line in text.splitlines() if not any(word in line for word in differs)]

    assert lines(ours) == lines(theirs)
    assert "schedlab.compare(" in ours.read_text()


def test_ctrl_c_ends_a_run() -> None:
    # One run of days: nothing but the engine itself can end it. The limit is for a program that hangs.
    script = (
        "import schedlab as sl\n"
        "print('begins', flush=True)\n"
        "try:\n"
        "    sl.compare('redis-batch', schedulers=['linux-6.18'], seeds=1, jobs=1, duration='100h')\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped')\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begins\n"
        try:
            # The call may not have begun yet; then Python raises where it is.
            for _ in range(60):
                child.send_signal(signal.SIGINT)
                try:
                    child.wait(1)
                    break
                except subprocess.TimeoutExpired:
                    continue
            assert child.poll() is not None, "it goes on after Ctrl-C"
        finally:
            child.kill()
        rest = child.stdout.read()
    assert rest == "stopped\n" or child.returncode == -signal.SIGINT


def test_the_command_line_can_be_run_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "schedlab", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == run("--version")


def test_names_are_listed() -> None:
    assert "linux-6.18" in sl.schedulers()
    assert "redis-batch" in sl.scenarios()


def test_only_what_a_call_reads_itself_is_never_written_over(tmp_path: Path) -> None:
    page, own = tmp_path / "x.html", tmp_path / "own.slt"
    for copy in (page, own):
        copy.write_bytes(RECORDING.read_bytes())
    sl.open(page)
    study = sl.compare(own, seeds=1, duration="300ms")
    # What another call has read is the caller's to write over, and a page may be written again.
    for _ in range(2):
        study.report(page)
        assert page.read_text().startswith("<!doctype html>")
    with pytest.raises(ValueError, match="give the output a name of its own"):
        study.report(own)
    assert own.read_bytes() == RECORDING.read_bytes()


def test_times_are_durations_where_they_are_asked_for(recording, tmp_path):
    whole, table = recording.latencies.to_pandas(), recording.latencies.durations()
    assert table.columns == recording.latencies.columns
    frame = table.to_pandas()
    assert str(frame["wait_ns"].dtype) == "duration[ns][pyarrow]"
    assert frame["wait_ns"].max() == pandas.Timedelta(int(whole["wait_ns"].max()), "ns")
    assert str(frame["tid"].dtype) == str(whole["tid"].dtype)
    assert table.to_polars()["wait_ns"].dtype == polars.Duration("ns")
    table.to_parquet(tmp_path / "waits.parquet")
    back = pyarrow.parquet.read_table(tmp_path / "waits.parquet")
    assert back.schema.field("wait_ns").type == pyarrow.duration("ns")
    assert pyarrow.types.is_timestamp(back.schema.field("wall_time").type)
    assert "wait_ns" in table._repr_html_()


def test_the_command_line_is_found_beside_the_package(tmp_path):
    """The one that the variable names, the one that was installed with the package, or none, said so."""
    package = Path(sl.__file__).resolve().parent
    plain = {key: value for key, value in os.environ.items() if key not in ("SCHEDLAB", "PATH", "PYTHONPATH")}

    def version(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "schedlab", "--version"]
        around = plain | {"PYTHONPATH": str(folder), "PATH": str(tmp_path)} | environment
        return subprocess.run(command, capture_output=True, text=True, check=False, env=around)

    named = version(package.parent, SCHEDLAB=PROGRAM)
    assert named.returncode == 0 and named.stdout.startswith("schedlab "), named
    target = tmp_path / "target"
    (target / "bin").mkdir(parents=True)
    missing = version(package.parent)
    assert missing.returncode == 2 and "make wheel" in missing.stderr, missing
    shutil.copytree(package, target / "schedlab")
    (target / "bin" / "schedlab").symlink_to(PROGRAM)
    beside = version(target)
    assert beside.returncode == 0 and beside.stdout == named.stdout, beside
