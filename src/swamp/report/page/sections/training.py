"""Section: loss, learning rate and evaluations of each training, and the numbers that its charts draw."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from swamp.core.metric import Metric
from swamp.drawing.markup import Section, chart, section
from swamp.drawing.numbers import finite
from swamp.report.page.charts import significant
from swamp.report.page.content import PageContent
from swamp.results.cells import metrics_of
from swamp.results.series import Series

order = 50


MAX_EPOCHS = 150_000  # of all training curves together; beyond, every second epoch is left out, or every third, …


def show(content: PageContent) -> Section | None:
    curves = training_curves(content.series)
    if not curves["training"]:
        return None
    thinned = f" One epoch in {curves['epochStep']} is drawn, so that the page stays small." if curves["epochStep"] > 1 else ""
    evaluated = ", and its evaluations (the setting evaluate_every)" if curves["evaluated"] else ""
    intro = f"Training loss and learning rate of each training of a run{evaluated}.{thinned}"
    return section("Training", "Training curves", intro, chart("training"), data=curves)


def training_curves(all_series: Sequence[Series]) -> dict[str, Any]:
    """Return loss, learning rate and evaluations of each training by epoch. Particles share their learning rates, which are stored once."""
    runs = []
    for index, run in ((index, run) for index, series in enumerate(all_series) for run in series.runs):
        curves: dict[str, list[dict[str, Any]]] = {}
        for record in run.epochs():
            curves.setdefault(record["training"], []).append(record)
        if curves:
            runs.append((index, run.seed, curves))
    total = sum(len(records) for _, _, curves in runs for records in curves.values())
    step = -(-total // MAX_EPOCHS) or 1
    rates: dict[tuple[Any, ...], int] = {}
    metrics = evaluated_metrics(all_series)
    training: list[dict[str, Any]] = [
        {
            "series": series,
            "seed": seed,
            "curves": [
                {
                    "label": label,
                    "stage": stage(label),
                    "epochs": len(records),
                    "loss": [number(record.get("loss")) for record in records[::step]],
                    "rate": rates.setdefault(tuple(number(record.get("learning_rate")) for record in records[::step]), len(rates)),
                    "evaluated": evaluations(records, metrics, step),
                }
                for label, records in curves.items()
            ],
        }
        for series, seed, curves in runs
    ]
    # Every run evaluates its ticket, once: that alone is no curve.
    used = {name for run in training for curve in run["curves"] if curve["stage"] != "ticket" for name in curve["evaluated"]}
    shown = {name: {"label": metric.chart_label, "digits": metric.digits} for name, metric in metrics.items() if name in used}
    return {"training": training, "rates": [list(rate) for rate in rates], "epochStep": step, "evaluated": shown}


def evaluated_metrics(all_series: Sequence[Series]) -> dict[str, Metric]:
    """Return the metrics that trainings may have been evaluated by, under their names in the records of epochs."""
    metrics = [metric.of_test_set(split) for metric in metrics_of(all_series) for split in ("validation", "test")]
    return {metric.name: metric for metric in metrics}


def evaluations(records: Sequence[Mapping[str, Any]], metrics: Mapping[str, Metric], step: int) -> dict[str, list[list[float]]]:
    """Return pairs of an epoch, counted from 1, and what charts draw of its evaluation, for each metric that it was evaluated by."""
    found: dict[str, list[list[float]]] = {}
    for record in records:
        for name in record.keys() & metrics.keys():
            if (value := finite(record[name])) is not None:
                found.setdefault(name, []).append([record["epoch"] + 1, significant(metrics[name].chart_value(value))])
    return {name: pairs[::-step][::-1] for name, pairs in found.items()}  # The last one is kept.


def number(value: Any) -> float | None:
    """Return a number as the page stores it; None where it is no finite number."""
    found = finite(value)
    return None if found is None else significant(found, 4)


def stage(label: str) -> str:
    """Return the stage of a training. Trainings that differ only in their particle are one stage.

    >>> stage("cycle 3, particle 1"), stage("ticket")
    ('cycle 3', 'ticket')
    """
    return re.sub(r", particle \d+$", "", label)
