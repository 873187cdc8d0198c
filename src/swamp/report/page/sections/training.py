"""Section: training loss and learning rate of each training, and the numbers that its chart draws."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from swamp.drawing.markup import Section, chart, section
from swamp.drawing.numbers import finite
from swamp.report.page.charts import significant
from swamp.report.page.content import PageContent
from swamp.results.series import Series

order = 50


MAX_EPOCHS = 150_000  # of all training curves together; beyond, every second epoch is left out, or every third, …


def show(content: PageContent) -> Section | None:
    curves = training_curves(content.series)
    if not curves["training"]:
        return None
    thinned = f" One epoch in {curves['epochStep']} is drawn, so that the page stays small." if curves["epochStep"] > 1 else ""
    intro = f"Training loss and learning rate of each training of a run.{thinned}"
    return section("Training", "Training curves", intro, chart("training"), data=curves)


def training_curves(all_series: Sequence[Series]) -> dict[str, Any]:
    """Return loss and learning rate of each training by epoch. Particles share their learning rates, which are stored once."""
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
    training = [
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
                }
                for label, records in curves.items()
            ],
        }
        for series, seed, curves in runs
    ]
    return {"training": training, "rates": [list(rate) for rate in rates], "epochStep": step}


def number(value: Any) -> float | None:
    """Return a number as the page stores it; None where it is no finite number."""
    found = finite(value)
    return None if found is None else significant(found, 4)


def stage(label: str) -> str:
    """Return the stage of a training. Trainings that differ in their particle alone are one stage.

    >>> stage("cycle 3, particle 1"), stage("ticket")
    ('cycle 3', 'ticket')
    """
    return re.sub(r", particle \d+$", "", label)
