"""The compiled part."""

from collections.abc import Callable
from os import PathLike

__version__: str

class NativeTable:
    columns: list[tuple[str, str]]
    def head(self, count: int) -> list[list[int | float | bool | str | None]]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __len__(self) -> int: ...

class NativeRecording:
    path: PathLike[str]
    window: tuple[int, int] | None
    simulated: bool
    duration_ns: int
    def header_json(self) -> str: ...
    def repairs_json(self) -> str: ...
    def table(self, name: str) -> NativeTable: ...
    def part(self, from_ns: int, to_ns: int) -> NativeRecording: ...

class NativeStudy:
    verdict: tuple[str, str]
    def json(self) -> str: ...
    def open_tables_json(self) -> str: ...
    def rows(self) -> NativeTable: ...
    def expectations(self) -> NativeTable: ...
    def report(self, path: str, command: str, made_on: str) -> None: ...

class NativeSweep:
    def __new__(
        cls, input: str, begin_ns: int | None, duration_ns: int | None, replay: str | None
    ) -> NativeSweep: ...
    def rows(
        self,
        points: list[tuple[str | None, str]],
        only: list[str],
        seeds: int,
        seed: int | None,
        jobs: int,
    ) -> NativeTable: ...

class NativeSearch:
    def __new__(
        cls,
        input: str,
        goal: str,
        keep: list[str],
        space: list[str],
        seeds: int,
        seed: int | None,
        begin_ns: int | None,
        duration_ns: int | None,
        serve: str | None,
        replay: str | None,
    ) -> NativeSearch: ...
    def losses(self, values: list[list[str]], jobs: int) -> list[list[float] | None]: ...
    def finish(
        self,
        values: list[list[str]],
        losses: list[list[float] | None],
        how: str,
        validate: list[str],
        jobs: int,
    ) -> str: ...
    def search(self, trials: int, validate: list[str], jobs: int) -> str: ...

def open(path: str) -> NativeRecording: ...
def scenario(
    name: str,
    scheduler: str | None = None,
    variant: str | None = None,
    seed: int | None = None,
    duration_ns: int | None = None,
) -> NativeRecording: ...
def scenario_by(
    name: str,
    scheduler: object,
    variant: str | None = None,
    seed: int | None = None,
    duration_ns: int | None = None,
) -> NativeRecording: ...
def compare_options() -> list[tuple[str, str, str]]: ...
def compare(
    input: str,
    options: list[tuple[str, str]],
    report: Callable[[int, int], object] | None = None,
) -> NativeStudy: ...
def diff(before: str, after: str, fail_if: list[str], least: float, seed: int) -> str: ...
def schedulers() -> list[tuple[str, str]]: ...
def scenarios() -> list[str]: ...
