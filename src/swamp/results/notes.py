"""What must be said below a table of results, wherever it is shown."""

from __future__ import annotations

from collections.abc import Sequence

from swamp.results.cells import metrics_of
from swamp.results.paper import paper_numbers, shortened
from swamp.results.series import AT, SELECTED, Series, collapses


def notes_of(all_series: Sequence[Series], inexact: bool) -> list[str]:
    """`inexact`: whether a row has another sparsity than the one asked for."""
    selected = [series.label for series in all_series if any(row.selected_on == "validation" for row in series.rows)]
    metrics = metrics_of(all_series)
    quoted = [series for series in all_series if any(paper_numbers(series, metric).keys() & series.cycles for metric in metrics)]
    changed = [series.label for series in quoted if shortened(series)]
    other = f"; trainings have another length here: {', '.join(changed)}" if changed else ""
    found = [
        f"{AT}; such a row has no rank" if inexact else "",
        f"{SELECTED}: {', '.join(selected)}" if selected else "",
        f"the paper's numbers are of its whole schedule and three seeds{other}" if quoted else "",
        *collapses(all_series),
    ]
    return [note for note in found if note]
