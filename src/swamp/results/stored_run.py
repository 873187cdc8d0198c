"""Run directories as typed records. Each is read and checked once; tables, figures and the page take what is read here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from swamp.drawing.numbers import finite
from swamp.runs.config import Config, deciding_settings
from swamp.runs.stored import config_of, resume_command
from swamp.store import files, formats
from swamp.store.directory import Store
from swamp.store.finding import holds_header, number_key, runs_in
from swamp.store.records import RowRecord, checked_rows
from swamp.tasks.datasets.dataset import ONE_BATCH

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
    warnings: tuple[str, ...] = ()  # sentences about files that are damaged, or changed after the run was finished
    checksums: Mapping[str, str | None] = field(default_factory=dict)  # of the files that numbers are taken from, if the run is finished

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def problem(self) -> str:
        """The fingerprint of a user's own task without its initial weights; empty for built-in tasks."""
        return str(self.header.get("problem", ""))

    @property
    def limit_note(self) -> str:
        """Say so if the run used only some of the examples; an empty text if it used all."""
        most = self.config.tasks.get(self.config.task, {}).get("limit_examples", 0)
        if most == ONE_BATCH:
            return "one batch of each split: these numbers mean nothing"
        return f"at most {most} examples of each split" if most else ""

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
        """Read metrics.jsonl: one record per epoch of each training, in order. Lines that cannot be read are skipped. If the file changed
        after the run was finished, it has no records."""
        store = Store(self.directory)
        if self.finished and self.checksums.get(CURVES) != store.manifest().get(CURVES):
            return iter(())
        return formats.json_lines(store.folder, CURVES, {"training": str, "epoch": int})

    def layers_in_order(self, mask: str) -> list[str]:
        """Return the names of a mask's layers, from the network's input to its output. A run of an earlier version knows this order from
        the mask alone; where that is not stored here, nothing is returned."""
        return list(self.header.get("layers", ())) or Store(self.directory).mask_layers(mask) or []

    def seconds(self) -> float | None:
        """Return how long the run took, summed over all its processes; None where the journal does not say."""
        rows = [line for line in Store(self.directory).journal.records() if str(line["what"]).startswith("row ")]
        found = [seconds for line in rows if (seconds := finite(line.get("seconds"))) is not None]
        return sum(found) if found else None


def read_run(directory: Path) -> StoredRun:
    """Read one run directory and check it. A directory that is damaged or holds no run raises ValueError."""
    store = Store(directory)
    finished = store.finished()
    header, problem = store.header_and_problem()
    if header is None:
        raise ValueError(f"{directory} holds no run")
    rows, checksum = checked_rows(store, header)
    warnings = [problem] if problem else []
    checksums: dict[str, str | None] = {}
    if finished:
        checksums = {"results.json": checksum, CURVES: store.checksum(CURVES)}
        if checksums[CURVES] != store.manifest().get(CURVES):
            warnings.append(f"{directory / CURVES} changed since the run was finished; training curves are left out")
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
        if not holds_header(path):
            left_out.append(LeftOut(path, "its run.json is missing"))
            continue
        run = _try_read(path)
        if isinstance(run, LeftOut):
            left_out.append(run)
        else:
            config = run.config
            equal = runs.setdefault(str((config.recipe, config.method, run.problem, deciding_settings(config))), run)
            if equal is not run:
                why = f"it has the configuration and the seed of {equal.directory}, which is shown"
                left_out.append(LeftOut(path, why, damaged=False))
    return list(runs.values()), left_out


def read_each(directories: Iterable[Path]) -> tuple[list[StoredRun], list[LeftOut]]:
    """Read run directories like `read_run`. Those that are damaged are left out, with the reason."""
    found = [_try_read(directory) for directory in directories]
    return [run for run in found if isinstance(run, StoredRun)], [one for one in found if isinstance(one, LeftOut)]


def _try_read(directory: Path) -> StoredRun | LeftOut:
    try:
        return read_run(directory)
    except OSError as error:
        return LeftOut(directory, files.explain_os_error(error))
    except ValueError as error:
        return LeftOut(directory, str(error))


class NothingToShow(ValueError):
    """None of the runs that were asked for can be shown."""

    exit_status = 1  # of a command that this error ends; 2 would mean a mistake of the user

    @classmethod
    def of(cls, left_out: Sequence[LeftOut]) -> NothingToShow:
        first, *others = left_out
        return cls(f"{first.directory} cannot be shown: {first.why}" + (f" (and {len(others)} more)" if others else ""))


def require_runs(directories: Iterable[Path]) -> tuple[list[StoredRun], list[LeftOut]]:
    """Read runs like `read_runs`. If none of them can be shown, that is an error."""
    runs, left_out = read_runs(directories)
    if not runs:
        raise NothingToShow.of(left_out)
    return runs, left_out


def _run_directories(directory: Path) -> list[Path]:
    """Return the run directories in a directory, and those that have rows but have lost their run.json."""
    results = (directory / "results.json", *directory.glob("*/results.json"))
    lost = {path.parent for path in results if path.exists() and not holds_header(path.parent)}
    try:
        return sorted({*runs_in(directory), *lost}, key=lambda path: number_key(path.name))
    except ValueError:
        if lost:
            return sorted(lost)
        raise
