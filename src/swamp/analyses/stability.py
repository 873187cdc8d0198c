"""Is training stable to the noise of SGD? Loss and error on the lines between two trainings of one start, as of the init and the ticket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swamp.analyses.analysis import Arrays, PageResults, SeriesResults, StoredResult
from swamp.analyses.paths import LinePath, PathsResult, Settings, barrier_lines, drawn, line_between, measured, path_section
from swamp.analyses.presentation import draw_band, finish_spread, legend_below, measure_axes, titled, training_losses
from swamp.analyses.study import Study, Work
from swamp.drawing.canvas import STYLES, tidy
from swamp.drawing.markup import Section
from swamp.landscape.connectivity import between
from swamp.tasks.task import dense_mask

name = "stability"
summary = "Two dense trainings from the random init against two from the ticket. Trains four networks."
needs = "last"
heads = ("path",)
lines = barrier_lines
note = training_losses

Result = PathsResult  # with a path for each start, which is its kind


def plan(study: Study, settings: Settings) -> Work:
    """Train twice from each start, with the same two noises, and follow the line between the two."""
    maker = study.maker
    if not maker.has_ticket:
        raise ValueError("stability compares trainings from the ticket with trainings from the init, and this run has no ticket")
    init = study.analysis_store.solution(maker.init_key)
    ticket = init and study.analysis_store.solution(maker.ticket_job(init).key)
    if not init or not ticket or not all(study.has(start.key) for start in (init, ticket)):
        raise ValueError(f"stability needs the run's init and ticket, and they are not in {study.directory}")
    starts = {"the init": init, "the ticket": ticket}
    noises = list(maker.noise.split("stability", 2))
    jobs = {kind: [maker.job(start, dense_mask(study.task), noise) for noise in noises] for kind, start in starts.items()}
    lines = {kind: line_between(study, settings, first.key, second.key) for kind, (first, second) in jobs.items()}
    all_jobs = [job for pair in jobs.values() for job in pair]

    def finish() -> tuple[Result, Arrays]:
        study.train(all_jobs)
        paths = [LinePath(label=f"two trainings from {kind}", kind=kind, **measured(study, settings, line)) for kind, line in lines.items()]
        return Result(run=study.identity, lambdas=between(settings.points), examples=study.num_examples, paths=paths), {}

    return Work(finish, [step for line in lines.values() for step in line], all_jobs)


def figure(plt: Any, found: StoredResult[Result]) -> Any:
    result = found.result
    figure, row = measure_axes(plt, result.measures, 3.6)
    for measure, axes in zip(result.measures, row[0], strict=True):
        for path, (colour, marker) in zip(result.paths, STYLES[1::-1], strict=False):
            values = drawn(path.values[measure], measure)
            axes.plot(result.lambdas, values, color=colour, marker=marker, markersize=4, label=path.label)
        axes.set_xlabel("λ, from one training to the other")
        tidy(axes)
    legend_below(figure, row[0][0], 2)
    return titled(figure, result, "Stability to SGD noise")


def spread_figure(plt: Any, found: Sequence[SeriesResults]) -> Any:
    measures = found[0].results[0].measures
    figure, grid = measure_axes(plt, measures, 3.8)
    for measure, axes in zip(measures, grid[0], strict=True):
        index = 0
        for series in found:
            lambdas = series.results[0].lambdas
            alike = [one for one in series.results if one.lambdas == lambdas]
            for kind in dict.fromkeys(path.kind for one in alike for path in one.paths):
                curves = [drawn(path.values[measure], measure) for one in alike for path in one.of_kind(kind)]
                draw_band(axes, lambdas, curves, index, f"{series.legend}: from {kind}")
                index += 1
        axes.set_xlabel("λ, from one training to the other")
    return finish_spread(figure, grid, "Stability to SGD noise", found)


def show_section(page: PageResults) -> Section:
    where = "the straight line between two dense trainings of one start with different noise"
    # One kind for all: the init and the ticket are there to be compared.
    return path_section(page, name, "Do two trainings of one start stay connected?", where, kind=name)
