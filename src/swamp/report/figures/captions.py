"""Titles and labels of figures that follow from the series in them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from swamp.drawing.canvas import text
from swamp.drawing.numbers import PERCENTAGES, format_of
from swamp.results.series import Series


def on(all_series: Sequence[Series]) -> str:
    """The recipes, for a title."""
    return text(", ".join(sorted({series.recipe for series in all_series})))


def name_missing(figure: Any, all_series: Sequence[Series], drawn: Collection[str]) -> None:
    """Say below the picture whom it does not show."""
    missing = [series.label for series in all_series if series.label not in drawn]
    if missing:
        figure.supxlabel(text(f"not measured at this sparsity: {', '.join(missing)}"), fontsize=8)


def error_label(all_series: Sequence[Series]) -> str:
    metrics = {row.metric for series in all_series for row in series.rows}
    return "test error (%)" if metrics <= PERCENTAGES else ", ".join(sorted(format_of(metric).label for metric in metrics))
