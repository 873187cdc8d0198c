"""Differences between the runs of a comparison, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from swamp.report.comparison import FEW
from swamp.report.numbers import format_of, percent
from swamp.report.series import Series, read_series
from swamp.report.statistics import EXPLAINED, Difference, difference_text, paired
from swamp.report.tables import Table

BASELINE = "imp"


def differences(directories: Sequence[Path]) -> Table | None:
    """Each series minus the baseline (the first of IMP, else the first) at each sparsity; None where no two seeds are shared."""
    all_series = read_series(directories)
    baseline = next((series for series in all_series if series.method == BASELINE), all_series[0])
    others = [series for series in all_series if series is not baseline]
    metric = next((row.metric for series in all_series for run in series.runs for row in run), "")
    wanted = {(s.wanted(row), 1 - s.wanted(row) / row.num_prunable) for s in all_series for run in s.runs for row in run}
    found: dict[tuple[str, int], Difference | None] = {}
    for series in others:
        for survivors, _ in wanted:
            found[series.label, survivors] = paired(_by_seed(series, metric, survivors), _by_seed(baseline, metric, survivors))
    if not any(difference and difference.num_pairs > 1 for difference in found.values()):
        return None
    form = format_of(metric)
    counts = sorted(wanted, reverse=True)
    texts = {series.label: [difference_text(found[series.label, survivors], form.digits) for survivors, _ in counts] for series in others}
    sparsities = [percent(sparsity) for _, sparsity in counts]
    title = f"Differences in {form.label}, each minus {baseline.label}"
    if len(all_series) <= FEW:
        body = [[sparsity, *cells] for sparsity, *cells in zip(sparsities, *texts.values(), strict=True)]
        return Table(title, ["sparsity %", *texts], body, EXPLAINED)
    return Table(title, ["at sparsity %", *sparsities], [[label, *cells] for label, cells in texts.items()], EXPLAINED)


def _by_seed(series: Series, metric: str, survivors: int) -> dict[int, float]:
    scale = format_of(metric).scale
    return {seed: scale * row.metrics[metric] for seed, row in series.seeded(survivors)}
