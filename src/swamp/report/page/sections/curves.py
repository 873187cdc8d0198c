"""Section: curves of error against sparsity."""

from __future__ import annotations

from collections.abc import Sequence

from swamp.drawing.markup import Html, Section, chart, element, section
from swamp.report.page.charts import each_recipe
from swamp.report.page.content import PageContent
from swamp.results.cells import metrics_of
from swamp.results.series import Series, by_recipe

order = 10


def show(content: PageContent) -> Section | None:
    if not by_recipe(content.series):
        return None
    means = "Means over seeds on the test set, after the last epoch; bands are ± one standard deviation."
    alone = "On the test set, after the last epoch."
    return section(
        "Curves",
        "Error against sparsity",
        f"{means if content.has_means else alone} Point at a chart to read it, draw a box to look closer.",
        element("div", data_chart="axes", class_="controls"),
        *each_recipe(content.series, curves),
    )


def curves(group: Sequence[Series], recipe: str | None) -> list[Html]:
    """Return the charts of the metric that counts and of the NLL, side by side."""
    first, *others = [metric.name for metric in metrics_of(group)]
    names = [first, *(name for name in others if name == "nll")]
    return [element("div", *(chart("curves", data_metric=name, data_recipe=recipe) for name in names), class_="pair")]
