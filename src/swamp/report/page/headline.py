"""The headline of a recipe: what its runs found, in a sentence, and what it took."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from swamp.core.metric import Metric
from swamp.drawing.markup import Html, element, join
from swamp.drawing.numbers import prefix_of
from swamp.results.cells import Cell, at_common_level, best_first, cells, levels_of, metrics_of
from swamp.results.series import METHODS_NAMED_FIRST, Series
from swamp.store.records import RowRecord

MOST = 4  # methods that it names


def headline(all_series: Sequence[Series]) -> Html | None:
    """Say what the runs of one recipe found: the best at the highest sparsity that most methods reach, beside SWAMP, IMP and dense; below
    it, which network to take where it must be as good as a dense one, over how many seeds, and how much training it took."""
    metric = metrics_of(all_series)[0]
    level, at_level = at_common_level(all_series, metric)
    pairs = [(series, cell) for series, cell in zip(all_series, at_level, strict=True) if cell and not cell.other_sparsity]
    if not pairs:
        return None
    found, rows = {series.name: cell for series, cell in pairs}, {series.name: series.rows_at(level.density) for series, _ in pairs}
    ranked = best_first({label: cell.mean for label, cell in found.items()}, metric)
    named = [ranked[0], *sorted(ranked[1:], key=lambda label: label not in METHODS_NAMED_FIRST)][:MOST]
    unit, what = (" %", metric.label.removesuffix(" %")) if metric.label.endswith(" %") else ("", metric.label)
    first, *others = [join(element("b", label), " ", number(found[label].text + unit * (not place))) for place, label in enumerate(named)]
    shown, numbers = {label: rows[label] for label in named}, [found[label] for label in named]
    if dense := dense_cell(all_series, metric, ranked) if level.sparsity else None:
        label, cell, shown[label] = dense
        others.append(join(f"{label} ", number(cell.text)))
        numbers.append(cell)
    rest = join("; ", Html(", ".join(others))) if others else ""
    more = f"; {unnamed} more in the table" if (unnamed := len(ranked) - len(named)) else ""
    pick, compared = sparsest_as_good(all_series, metric, unit)
    below = element("span", " ", seeds_of([*numbers, *compared], len(named)), training_of(shown), class_="below")
    return join(f"{what[:1].upper()}{what[1:]} at {level.label} % sparsity: ", first, rest, more, ".", pick, below)


def sparsest_as_good(all_series: Sequence[Series], metric: Metric, unit: str) -> tuple[Html | None, list[Cell]]:
    """Name the sparsest network that is at least as good as the best dense one, as numbers are printed, and its cycle, by which other
    commands know it. Return the sentence and the numbers in it; None where there is nothing to compare."""
    levels = levels_of(all_series)
    table = cells(all_series, levels, metric)
    dense = [cell for cell, *_ in table if cell and not levels[0].sparsity and not cell.other_sparsity]
    if not dense or len(levels) < 2 or metric.maximise is None:
        return None, []
    sign = 1 if metric.maximise else -1

    def goodness(cell: Cell) -> float:
        return sign * round(cell.mean, metric.digits)

    best = max(dense, key=goodness)
    on_average = " on average" if any(len(cell.values) > 1 for line in table for cell in line if cell) else ""
    compared = join(f"as good{on_average} as the best dense one (", number(best.text + unit), ")")
    good: list[tuple[float, float, int, str, Cell]] = []  # by sparsity, which is not always the one asked for, and by how good it is
    for place, (series, line) in enumerate(zip(all_series, table, strict=True)):
        for level, cell in zip(levels[1:], line[1:], strict=True):
            if cell and goodness(cell) >= goodness(best):
                good.append((float(cell.other_sparsity or level.label), goodness(cell), -place, series.name, cell))
    if good:
        sparsity, value, _, name, cell = max(good, key=lambda one: one[:3])
        equal = [other for *found, _, other, _ in good if found == [sparsity, value] and other != name]
        others = f", level with {', '.join(equal) if len(equal) < MOST else f'{len(equal)} others'}" if equal else ""
        where = f" at {sparsity:.2f} % sparsity (cycle {cell.cycle}) with "
        said = join("The sparsest network ", compared, ": ", element("b", name), where, number(cell.text + unit), others, ".")
        return element("span", " ", said, class_="pick"), [best, cell]
    return element("span", " No sparse network is ", compared, ".", class_="pick"), [best]


def seeds_of(shown: Sequence[Cell], num_methods: int) -> str:
    """Say over how many seeds the numbers of a headline are, those of dense networks included."""
    least, most = (limit(len(cell.values) for cell in shown) for limit in (min, max))
    if most == 1:
        return "One seed each." if num_methods > 1 else "One seed."
    return f"Means ± standard deviations over {most if least == most else f'{least} to {most}'} seeds."


def training_of(shown: Mapping[str, Sequence[RowRecord]]) -> str:
    """Say how many multiply-adds all training up to the networks of a headline took; nothing where those of some layer are unknown."""
    if any(row.uncounted for rows in shown.values() for row in rows):
        return ""
    macs = {label: statistics.fmean(row.training_macs for row in rows) for label, rows in shown.items()}
    prefix, factor = prefix_of(max(macs.values()))
    listed = ", ".join(f"{label} {value / factor:.3g}" for label, value in macs.items())
    return f" All training up to there, in {prefix}MACs (multiply-adds): {listed}."


def number(text: str) -> Html:
    return element("span", text, class_="number")


def dense_cell(all_series: Sequence[Series], metric: Metric, ranked: Sequence[str]) -> tuple[str, Cell, list[RowRecord]] | None:
    """The dense network: that of the method `dense`, or else cycle 0 of the best that has one, so that like is beside like."""
    levels = levels_of(all_series)[:1]
    densest = [cell for (cell,) in cells(all_series, levels, metric)]
    having = [(series, cell) for series, cell in zip(all_series, densest, strict=True) if cell and cell.cycle == 0]
    order = {name: place for place, name in enumerate(ranked)}
    for series, cell in sorted(having, key=lambda pair: (pair[0].method != "dense", order.get(pair[0].name, len(order)))):
        return ("dense" if series.method == "dense" else f"dense ({series.name})"), cell, series.rows_at(levels[0].density)
    return None
