"""Section: what networks cost against how good they are."""

from __future__ import annotations

from swamp.drawing.markup import Section, chart, section
from swamp.report.page.charts import each_recipe
from swamp.report.page.content import PageContent
from swamp.results.series import by_recipe

order = 30


def show(content: PageContent) -> Section | None:
    if not by_recipe(content.series):
        return None
    bands = "; bands are ± one standard deviation over seeds" if content.has_means else ""
    return section(
        "Cost",
        "Error against cost",
        f"Each line goes through a method’s sparsities{bands}. The paper’s cost is the forward multiply-adds of one example in the masked "
        "network, summed over all trainings so far; the total counts every example, epoch and backward pass, and the ticket.",
        *each_recipe(content.series, lambda _, recipe: [chart("cost", data_recipe=recipe)]),
    )
