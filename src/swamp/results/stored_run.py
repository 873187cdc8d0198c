"""Run directories as typed records. Each is read and checked once; tables, figures and the page take what is read here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from swamp.drawing.numbers import finite
from swamp.runs.config import Config, deciding_settings
from swamp.runs.stored import config_of, resume_command
from swamp.store import files
from swamp.store.directory import Store, runs_in
from swamp.store.records import RowRecord, decode_rows

CURVES = "metrics.jsonl"


class LeftOut(NamedTuple):
    """A run that is not shown, and the reason."""

    directory: Path
    why: str
    damaged: bool = True

    def __str__(self) -> str:
        return f"{self.directory} is not shown: {self.why}"


@dataclass(frozen=True)
class StoredRun:
    """A run directory as far as the run got."""

    directory: Path
    config: Config
    header: dict[str, Any]  # run.json
    rows: list[RowRecord]
    finished: bool
    failure: str | None = None  # the error that ended its last process
    warnings: tuple[str, ...] = ()  # files that changed after the run was finished
    checksums: Mapping[str, str | None] = field(default_factory=dict)  # of the files that numbers are taken from, if the run is finished

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def problem(self) -> str:
        """The fingerprint of a user's own task without its initial weights; empty for built-in tasks."""
        return str(self.header.get("problem", ""))

    @property
    def resume_command(self) -> str:
        """The command that resumes the run."""
        return resume_command(self.config, self.directory)

    def altered(self) -> str:
        """Say which files changed or went missing since the run was finished; an empty text if none did, or if it is not finished."""
        return Store(self.directory).altered(self.checksums) if self.finished else ""

    def missing_cycles(self) -> list[int]:
        """Return the cycles that an unfinished run will still report, as far as its rows tell: a method that begins dense goes through all
        cycles, one that does not goes through the targets."""
        seen = {row.cycle for row in self.rows}
        if self.finished or not seen:
            return []
        pruning = self.config.pruning
        return sorted(set(range(pruning.cycles + 1) if 0 in seen else pruning.target_cycles) - seen)

    def epochs(self) -> Iterator[dict[str, Any]]:
        """Read metrics.jsonl: one record per epoch of each training, in order. Lines that cannot be read are skipped."""
        return files.json_lines(self.directory / CURVES, {"training": str, "epoch": int})

    def mask_layers(self, mask: str) -> list[str] | None:
        """Read the names of a stored mask's layers, from the network's input to its output; None where the mask is not stored here."""
        return Store(self.directory).mask_layers(mask)

    def seconds(self) -> float | None:
        """Return how long the run took, summed over all its processes; None where the journal does not say."""
        rows = [line for line in Store(self.directory).journal.records() if str(line["what"]).startswith("row ")]
        found = [seconds for line in rows if (seconds := finite(line.get("seconds"))) is not None]
        return sum(found) if found else None


def read_run(directory: Path) -> StoredRun:
    """Read one run directory and check it. A directory that is damaged or holds no run raises ValueError."""
    store, path = Store(directory), directory / "results.json"
    finished = store.finished()
    content = path.read_bytes() if path.exists() else None
    rows = [] if content is None else decode_rows(content, path)
    header = store.header()
    if header is None:
        raise ValueError(f"{directory} holds no run")
    checksums: dict[str, str | None] = {}
    warnings = []
    if finished:
        listed = store.manifest()
        checksums = {path.name: None if content is None else hashlib.sha256(content).hexdigest(), CURVES: store.checksum(CURVES)}
        warnings = [f"{name} changed since the run was finished" for name, found in checksums.items() if found != listed.get(name, "")]
    failure = None if finished else store.journal.failure()
    return StoredRun(directory, config_of(header), header, rows, finished, failure, tuple(warnings), checksums)


def read_runs(directories: Iterable[Path]) -> tuple[list[StoredRun], list[LeftOut]]:
    """Read the runs in directories and in groups of them, each once. Runs that are damaged, or equal one before them, are left out."""
    runs: dict[str, StoredRun] = {}  # by all settings that decide the numbers
    left_out: list[LeftOut] = []
    seen: set[Path] = set()
    for path in (path for directory in directories for path in _run_directories(directory)):
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        if not (path / "run.json").exists():
            left_out.append(LeftOut(path, "its run.json is missing"))
            continue
        try:
            run = read_run(path)
        except OSError as error:
            left_out.append(LeftOut(path, files.explain_os_error(error)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = str(error) if isinstance(error, ValueError) else f"run.json is not that of a run ({error!r})"
            left_out.append(LeftOut(path, why))
        else:
            config = run.config
            equal = runs.setdefault(str((config.recipe, config.method, run.problem, deciding_settings(config))), run)
            if equal is not run:
                why = f"it has the configuration and the seed of {equal.directory}, which is shown"
                left_out.append(LeftOut(path, why, damaged=False))
    return list(runs.values()), left_out


def require_runs(directories: Iterable[Path]) -> tuple[list[StoredRun], list[LeftOut]]:
    """Read runs like `read_runs`. If none of them can be shown, that is an error."""
    runs, left_out = read_runs(directories)
    if not runs:
        raise ValueError(f"{left_out[0].directory} cannot be shown: {left_out[0].why}")
    return runs, left_out


def _run_directories(directory: Path) -> list[Path]:
    """Return the run directories in a directory, and those that have rows but have lost their run.json."""
    results = (directory / "results.json", *directory.glob("*/results.json"))
    lost = {path.parent for path in results if path.exists() and not (path.parent / "run.json").exists()}
    try:
        return sorted({*runs_in(directory), *lost}, key=lambda path: (len(path.name), path.name))
    except ValueError:
        if lost:
            return sorted(lost)
        raise
