"""Section: the density of each layer."""

from __future__ import annotations

from swamp.drawing.markup import Section, chart, element, section
from swamp.report.page.content import PageContent
from swamp.results.series import stored_layer_order

order = 60


def show(content: PageContent) -> Section | None:
    densities = [density for series in content.series for row in series.rows for density in row.densities.values()]
    if not densities:
        return None
    in_order = all(stored_layer_order(series.runs) for series in content.series if series.rows)
    order_text = "from the network’s input to its output" if in_order else "sorted by name"
    means = ", as the mean over seeds" if content.has_means else ""
    empty = "" if all(densities) else " A layer without weights is a gap in its line, or 0 on the linear axis."
    return section(
        "Layers",
        "Density of each layer",
        f"What remains of each layer’s weights, {order_text}{means}.{empty}",
        element("div", data_chart="legend"),
        chart("layers"),
    )
