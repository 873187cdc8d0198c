"""What results are made of: cost, particles, trainings, layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swamp.drawing.sections import LEGEND, Section, chart, section
from swamp.report.page.section import each_recipe
from swamp.results.series import Series, by_recipe


def cost(all_series: Sequence[Series]) -> Section | None:
    if not by_recipe(all_series):
        return None
    return section(
        "Cost",
        "Cost against error",
        "Each line goes through a method’s sparsities. The paper’s cost is the forward multiply-adds of one example in the masked network, "
        "summed over all trainings so far; the total counts every example, epoch and backward pass, and the ticket.",
        *each_recipe(all_series, lambda _, recipe: [chart("cost", data_recipe=recipe)]),
    )


def particles(all_series: Sequence[Series]) -> Section | None:
    if not any(row.members for series in all_series for row in series.rows):
        return None
    return section(
        "Particles",
        "Particles and their average",
        "Each particle of a cycle alone, and the average of their weights, which is what the cycle reports and what is pruned.",
        chart("particles"),
    )


def training(curves: Mapping[str, Any]) -> Section | None:
    if not curves["training"]:
        return None
    thinned = f" One epoch in {curves['epochStep']} is drawn, so that the page stays small." if curves["epochStep"] > 1 else ""
    return section("Training", "Training curves", f"Training loss and learning rate of each training of a run.{thinned}", chart("training"))


def layers(all_series: Sequence[Series]) -> Section | None:
    if not any(row.densities for series in all_series for row in series.rows):
        return None
    return section(
        "Layers",
        "Density of each layer",
        "What remains of each layer’s weights, from the network’s input to its output, as the mean over seeds.",
        LEGEND,
        chart("layers"),
    )
