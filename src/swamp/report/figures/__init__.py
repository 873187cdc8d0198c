"""Figures for papers: each file makes one from what runs found, and gallery.py names them all. Titles and labels of several are here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from swamp.drawing.canvas import text
from swamp.results.series import Series


def recipes_of(all_series: Sequence[Series]) -> str:
    """Name the recipes of series, for a title."""
    return text(", ".join(sorted({series.recipe for series in all_series})))


def name_missing(figure: Any, all_series: Sequence[Series], labels: Collection[str]) -> None:
    """Name below the picture the series that it does not show. `labels` are those of the series that it shows."""
    missing = [series.label for series in all_series if series.label not in labels]
    if missing:
        figure.supxlabel(text(f"not measured at this sparsity: {', '.join(missing)}"), fontsize=8)


def error_label(all_series: Sequence[Series]) -> str:
    """Name what is drawn of the metrics that count."""
    metrics = {row.described[row.metric] for series in all_series for row in series.rows}
    return "test error (%)" if all(metric.error for metric in metrics) else ", ".join(sorted(metric.label for metric in metrics))
