"""What must be said below a table of results, wherever it is shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from swamp.drawing.numbers import percent
from swamp.results.cells import is_inexact, metrics_of
from swamp.results.paper import paper_numbers, shortened
from swamp.results.series import Series
from swamp.store.records import RowRecord

OTHER_SPARSITY = "@: at this sparsity instead, which is what the method reached"
PAPER = "the paper's numbers are of its whole schedule and three seeds"


def notes_of(all_series: Sequence[Series]) -> list[str]:
    """Return the notes of a table of series."""
    selected = [series.label for series in all_series if selected_by_validation(series.rows)]
    metrics = metrics_of(all_series)
    quoted = [series for series in all_series if any(paper_numbers(series, metric.name).keys() & series.cycles for metric in metrics)]
    changed = [series.label for series in quoted if shortened(series)]
    other = f"; trainings have another length here: {', '.join(changed)}" if changed else ""
    found = [
        f"{OTHER_SPARSITY}; such a row has no rank" if is_inexact(all_series) else "",
        selection_note(selected),
        f"{PAPER}{other}" if quoted else "",
        *collapses(all_series),
    ]
    return [note for note in found if note]


def selected_by_validation(rows: Collection[RowRecord]) -> bool:
    return any(row.selected_on == "validation" for row in rows)


def selection_note(labels: Sequence[str]) -> str:
    """Name the configurations whose networks were selected by validation examples; an empty text where there are none."""
    return f"chosen by validation examples, which were not trained on: {', '.join(labels)}" if labels else ""


def collapses(all_series: Sequence[Series]) -> list[str]:
    """Return sentences that say which methods emptied which layers, one for all sparsities at which these are the same."""
    emptied: dict[tuple[str, float], set[str]] = {}
    for series in all_series:
        for row in series.rows:
            if row.empty_layers:
                emptied.setdefault((series.label, row.sparsity), set()).update(row.empty_layers)
    sparsities: dict[tuple[str, str], list[str]] = {}
    for (label, sparsity), names in sorted(emptied.items()):
        sparsities.setdefault((label, ", ".join(sorted(names))), []).append(percent(sparsity))
    return [f"empty layers of {label} at {', '.join(where)} %: {names}" for (label, names), where in sparsities.items()]
