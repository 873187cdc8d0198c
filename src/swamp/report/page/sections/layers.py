"""Section: the density of each layer."""

from __future__ import annotations

from swamp.drawing.markup import Section, chart, element, section
from swamp.report.page.content import PageContent

order = 60


def show(content: PageContent) -> Section | None:
    if not any(row.densities for series in content.series for row in series.rows):
        return None
    return section(
        "Layers",
        "Density of each layer",
        "What remains of each layer’s weights, from the network’s input to its output, as the mean over seeds.",
        element("div", data_chart="legend"),
        chart("layers"),
    )
