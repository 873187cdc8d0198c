"""Runs as tables, figures and the page read them. One that cannot be read is named with the reason, and the others are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from swamp.drawing.numbers import finite
from swamp.runs.config import Config, deciding_settings
from swamp.runs.stored import read_config
from swamp.store import files
from swamp.store.directory import Store, runs_in
from swamp.store.records import RowRecord, read_results

CHECKED = ("results.json", "metrics.jsonl")  # of a finished run: what numbers are taken from


class LeftOut(NamedTuple):
    """A run that is not shown, and why."""

    directory: Path
    why: str
    damaged: bool = True

    def __str__(self) -> str:
        return f"{self.directory} is not shown: {self.why}"


@dataclass(frozen=True)
class Reading:
    """A run, as far as it got."""

    directory: Path
    config: Config
    header: dict[str, Any]
    results: list[RowRecord]
    finished: bool
    failure: str | None = None  # what ended its last process
    warnings: tuple[str, ...] = ()

    def missing_cycles(self) -> list[int]:
        """The cycles that an unfinished run will still report, as far as its rows tell: a method that begins dense goes through all
        cycles, one that does not goes through the targets."""
        seen = {row.cycle for row in self.results}
        if self.finished or not seen:
            return []
        pruning = self.config.pruning
        return sorted(set(range(pruning.cycles + 1) if 0 in seen else pruning.target_cycles) - seen)

    def epochs(self) -> Iterator[dict[str, Any]]:
        """metrics.jsonl: a record an epoch of each training, in order. Lines that cannot be read are passed over."""
        return files.json_lines(self.directory / "metrics.jsonl", {"training": str, "epoch": int})

    def seconds(self) -> float | None:
        """How long the run took, all starts together; None where nothing says so."""
        rows = [line for line in Store(self.directory).journal.records() if _is_row(line)]
        found = [seconds for line in rows if (seconds := finite(line.get("seconds"))) is not None]
        return sum(found) if found else None


def _is_row(line: dict[str, Any]) -> bool:
    return str(line["what"]).startswith("row ")


def read_runs(directories: Iterable[Path]) -> tuple[list[Reading], list[LeftOut]]:
    """The runs that directories stand for, each once; and those that are not shown."""
    readings: dict[str, Reading] = {}  # by what decided the numbers
    left_out: list[LeftOut] = []
    seen: set[Path] = set()
    for path in (path for directory in directories for path in _places(directory)):
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        try:
            reading = _read(path)
        except OSError as error:
            left_out.append(LeftOut(path, files.explain_os_error(error)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = str(error) if isinstance(error, ValueError) else f"run.json is not that of a run ({error!r})"
            left_out.append(LeftOut(path, why))
        else:
            config, problem = reading.config, reading.header.get("problem", "")
            twin = readings.setdefault(str((config.recipe, config.method, problem, deciding_settings(config))), reading)
            if twin is not reading:
                why = f"it has the configuration and the seed of {twin.directory}, which is shown"
                left_out.append(LeftOut(path, why, damaged=False))
    return list(readings.values()), left_out


def readable(directories: Iterable[Path]) -> tuple[list[Path], list[LeftOut]]:
    """The directories of the runs to show; at least one, or there is nothing to be shown."""
    readings, left_out = read_runs(directories)
    if not readings:
        raise ValueError(f"{left_out[0].directory} cannot be shown: {left_out[0].why}")
    return [reading.directory for reading in readings], left_out


def _places(directory: Path) -> list[Path]:
    """The runs that a directory stands for, and what is left of those that have lost their run.json."""
    lost = {path.parent for path in (directory / "results.json", *directory.glob("*/results.json")) if _is_lost(path)}
    try:
        return sorted({*runs_in(directory), *lost}, key=lambda path: (len(path.name), path.name))
    except ValueError:
        if lost:
            return sorted(lost)
        raise


def _is_lost(results: Path) -> bool:
    return results.exists() and not (results.parent / "run.json").exists()


def _read(path: Path) -> Reading:
    store = Store(path)
    if not (path / "run.json").exists():
        raise ValueError("its run.json is missing")
    finished = store.finished()
    results = read_results(path)
    warnings = []
    if finished:
        listed = files.decode_json(path / "manifest.json")
        warnings = [f"{name} changed since the run was finished" for name in CHECKED if not _is(path / name, listed.get(name))]
    failure = None if finished else store.journal.failure()
    return Reading(path, read_config(path), store.header() or {}, results, finished, failure, tuple(warnings))


def _is(path: Path, checksum: str | None) -> bool:
    return path.exists() and files.sha256(path) == checksum
