"""Differences between the runs of a comparison, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence

from swamp.drawing.numbers import format_of
from swamp.drawing.tables import Table
from swamp.results.cells import Column, columns_of
from swamp.results.comparison import FEW
from swamp.results.series import Series, by_recipe
from swamp.results.statistics import EXPLAINED, difference_text, paired

BASELINE = "imp"


def differences(all_series: Sequence[Series]) -> list[Table]:
    """A table a recipe; none where no two seeds are shared."""
    return [table for _, group in by_recipe(all_series) if (table := differences_of(group))]


def differences_of(group: Sequence[Series]) -> Table | None:
    """Of one recipe: each series minus the baseline (the first of IMP, else the first) at each sparsity."""
    baseline = next((series for series in group if series.method == BASELINE), group[0])
    others = [series for series in group if series is not baseline]
    metric = next(row.metric for row in baseline.rows)
    columns = columns_of(group)
    found = {
        series.label: [paired(_by_seed(series, metric, column), _by_seed(baseline, metric, column)) for column in columns]
        for series in others
    }
    if not any(difference and difference.num_pairs > 1 for line in found.values() for difference in line):
        return None
    form = format_of(metric)
    texts = {label: [difference_text(difference, form.digits) for difference in line] for label, line in found.items()}
    sparsities = [column.label for column in columns]
    title = f"Differences in {form.label}, each minus {baseline.label}"
    if len(group) <= FEW:
        body = [[sparsity, *cells] for sparsity, *cells in zip(sparsities, *texts.values(), strict=True)]
        return Table(title, ["sparsity %", *texts], body, EXPLAINED)
    return Table(title, ["at sparsity %", *sparsities], [[label, *cells] for label, cells in texts.items()], EXPLAINED)


def _by_seed(series: Series, metric: str, column: Column) -> dict[int, float]:
    scale = format_of(metric).scale
    return {seed: scale * row.metrics[metric] for seed, row in series.seeded(column.density) if metric in row.metrics}
