"""What a report is made of: series of runs, and the results of analyses that were stored beside them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from swamp.analyses import analyses
from swamp.analyses.analysis import DamagedResult, PageResults, options_of, read_series, read_undamaged
from swamp.drawing.markup import Section
from swamp.results.series import Series
from swamp.results.stored_run import StoredRun


class PageContent:
    """The series that a page shows, and all results that were found beside their runs, each read once. `warnings` name the files that could
    not be read."""

    def __init__(self, all_series: Sequence[Series], directories: Sequence[Path]) -> None:
        """`directories` are those that the user named. They may hold comparisons of several runs."""
        self.series = all_series
        self.warnings: list[str] = []

        def warn(error: DamagedResult) -> None:
            self.warnings.append(str(error))

        labels = {run.directory.resolve(): f"{series.label}, seed {run.seed}" for series in all_series for run in series.runs}
        self.results: dict[str, PageResults] = {}  # by the kind of analysis
        for name, kind in analyses().items():
            found, between_runs = read_series(kind, all_series, warn), []
            if kind.between_runs:
                compared = dict.fromkeys(path.resolve() for path in [*directories, *labels])
                between_runs = [stored for path in compared if (stored := read_undamaged(path, kind.between_runs, warn, name))]
            self.results[name] = PageResults(found, between_runs, labels, self.warnings)

    @property
    def has_means(self) -> bool:
        """Whether any number of the page is a mean over seeds."""
        return any(len(series.runs) > 1 for series in self.series)

    def analysis_sections(self) -> list[Section | None]:
        """Return the section of each kind of analysis that has something to show."""
        functions = [(kind.show_section, self.results[name]) for name, kind in analyses().items()]
        return [show(results) for show, results in functions if show and (results.found or results.between_runs)]

    def analysis_commands(self, run: StoredRun) -> list[str]:
        """Return `swamp analyse …` for each result beside a run, with the options that it was made with."""
        commands = []
        for name, kind in analyses().items():
            for result in (stored.result for _, stored in self.results[name].runs if stored.directory == run.directory):
                options = [option for option in options_of(kind.Settings) if hasattr(result, option)]
                given = [f"--{option} {getattr(result, option)}" for option in options]
                if result.cycles and set(result.cycles) != {row.cycle for row in run.rows}:
                    given.append(f"--cycles {','.join(map(str, result.cycles))}")
                commands.append(" ".join(["swamp analyse", shlex.quote(str(run.directory)), f"--{name}", *given]))
        return commands
