"""How far a network's confidence is to be trusted: reliability curves on the test set."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from swamp.analyses import analysis
from swamp.analyses.analysis import Arrays, Line, RowResult, Settings, StoredResult, cycle_fields
from swamp.analyses.presentation import CYCLE, cycle_cells, titled
from swamp.analyses.study import Study, Work
from swamp.drawing.canvas import GREY, STYLES, few, shades, tidy
from swamp.landscape.calibration import reliability
from swamp.store.records import RowRecord
from swamp.training.numerics import applied, autocast

name = "calibration"
summary = "Reliability curves."
needs = "averages"
heads = CYCLE

NO_CLASSES = "calibration is of classifiers, and this task gives no class probabilities"
FEW = 10  # examples that a bin of a reliability curve needs


class Row(RowResult, frozen=True, kw_only=True):
    """The metrics of the cycle's solution, and its curve as in `landscape.calibration.Reliability`."""

    metrics: dict[str, float]
    counts: list[int]
    confidence: list[float]
    accuracy: list[float]
    ece: float
    temperature: float


class Result(analysis.Result, frozen=True, kw_only=True):
    rows: list[Row]


def plan(study: Study, settings: Settings) -> Work:
    if not getattr(study.task, "classifies", True):  # known before any work is done, so that other analyses go on
        raise ValueError(NO_CLASSES)
    rows, notes = study.rows_with_solution()

    def curve(row: RowRecord) -> Any:
        model = study.task.model().to(study.device)
        study.state(row.solution).into(model)
        with applied(study.config.numerics), autocast(study.config.numerics, study.device):
            found = study.task.predict(model, "test")
        if found is None:  # a task need not say beforehand that it is no classifier
            raise ValueError(NO_CLASSES)
        return msgspec.to_builtins(reliability(*found))

    steps = {row.cycle: study.step("reliability", {"solution": row.solution}, partial(curve, row)) for row in rows}

    def finish() -> tuple[Result, Arrays]:
        found = [msgspec.convert({**cycle_fields(row), "metrics": row.metrics, **study.get(steps[row.cycle])}, Row) for row in rows]
        return Result(run=study.identity, rows=found), {}

    return Work(finish, list(steps.values()), notes=notes)


def lines(result: Result) -> list[Line]:
    def numbers(row: Row) -> dict[str, float | None]:
        nll, calibrated = row.metrics.get("nll"), row.metrics.get("calibrated_nll")
        shown = {"ECE %": 100 * row.ece, "NLL": nll, "calib. NLL": calibrated, "T": row.temperature}
        return {name: value for name, value in shown.items() if value is not None}

    return [Line(cycle_cells(row), numbers(row)) for row in result.rows]


def figure(plt: Any, found: StoredResult[Result]) -> Any:
    """Draw the reliability curve and the number of examples in each bin. Bins with few examples are left out of the curve: their accuracy
    is mostly chance."""
    rows = found.result.rows
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(5.6, 6.8), layout="constrained", height_ratios=(3, 1), sharex=True)
    upper.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
    labels = few([f"{row.percentage}: ECE {100 * row.ece:.2f} %, T = {row.temperature:.2f}" for row in rows], 16)
    for row, label, colour, (_, marker) in zip(rows, labels, shades(plt, len(rows)), STYLES * len(rows), strict=False):
        look = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.2}
        for axes, values, least in ((upper, row.accuracy, FEW), (lower, row.counts, 1)):
            known = [i for i, count in enumerate(row.counts) if count >= least]
            axes.plot([row.confidence[i] for i in known], [values[i] for i in known], label=label, **look)
    upper.set_ylabel(f"accuracy in bins of {FEW} examples or more")
    upper.set_ylim(-0.02, 1.02)
    lower.axhline(FEW, color=GREY, linestyle=":", linewidth=1)
    lower.set_yscale("log")
    lower.set_ylabel("test examples")
    lower.set_xlabel("mean confidence in the bin")
    for axes in (upper, lower):
        tidy(axes)
    handles, labels = upper.get_legend_handles_labels()
    title = "sparsity; T: fitted temperature"
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=2, title=title, title_fontsize=8, loc="outside lower center")
    return titled(figure, found.result, "Calibration")
