"""Section: particles beside their average."""

from __future__ import annotations

from swamp.drawing.markup import Section, chart, section
from swamp.report.page.content import PageContent

order = 40


def show(content: PageContent) -> Section | None:
    if not any(row.members for series in content.series for row in series.rows):
        return None
    return section(
        "Particles",
        "Particles and their average",
        "Each particle of a cycle alone, and the average of their weights, which is what the cycle reports and what is pruned.",
        chart("particles"),
    )
