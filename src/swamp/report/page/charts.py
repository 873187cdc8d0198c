"""The numbers behind a report's charts, as plain data: what static/*.js draws.

Errors are drawn, not accuracies: they begin at zero, and a difference of a tenth of a point can be seen.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from swamp.drawing.numbers import error_of, finite, format_of, spread
from swamp.results.cells import cells, columns_of, common_column, metrics_of
from swamp.results.ranking import best_first, more_is_better
from swamp.results.series import Series, by_recipe, layer_names
from swamp.store.records import RowRecord

FEW = 6  # series shown at first; the others are there to be switched on
MAX_EPOCHS = 150_000  # of all training curves together; beyond, every second epoch is left out, or every third, …
PREFERRED = ("swamp", "imp")  # shown at first in any case


def chart_data(all_series: Sequence[Series]) -> dict[str, Any]:
    metrics = metrics_of(all_series)
    layers = {id(series): layers_of(series) for series in all_series}
    first = shown_at_first(all_series)
    return {
        "metrics": {name: drawn(name) for name in metrics},
        "series": [
            {
                "label": series.label,
                "name": series.name,
                "recipe": series.recipe,
                "seeds": series.seeds,
                "shown": index in first,
                "layers": layers[id(series)],
                "points": [point(rows, metrics, layers[id(series)]) for rows in rows_by_sparsity(series)],
            }
            for index, series in enumerate(all_series)
        ],
        **training_curves(all_series),
    }


def drawn(metric: str) -> dict[str, Any]:
    """How a metric is drawn: its label, and the digits of its numbers."""
    form = format_of(metric)
    if not more_is_better(metric):
        return {"label": f"test {form.label}" if "." not in metric else form.label, "digits": form.digits}
    place, _, kind = metric.rpartition(".")
    what = "error" if kind == "accuracy" else "1 − F1"
    return {"label": f"{place or 'test'} {what} %", "digits": form.digits}


def significant(value: float, digits: int = 6) -> float:
    """
    >>> significant(0.123456789), significant(1234567.0)
    (0.123457, 1234570.0)
    """
    return float(f"{value:.{digits}g}")


def rows_by_sparsity(series: Series) -> Iterator[list[tuple[int, RowRecord]]]:
    for column in columns_of([series]):
        yield series.seeded(column.density)


def point(seeded: Sequence[tuple[int, RowRecord]], metrics: Iterable[str], layers: Sequence[str]) -> dict[str, Any]:
    """A series at a sparsity: means over seeds, deviations, every seed's value and every particle's."""
    rows = [row for _, row in seeded]
    measured = {}
    for name in metrics:
        having = [row for row in rows if name in row.metrics]
        if not having:
            continue
        values = [error_of(name, row.metrics) for row in having]
        measured[name] = {
            "mean": significant(statistics.fmean(values)),
            "std": significant(statistics.stdev(values)) if len(values) > 1 else None,
            "text": spread(values, format_of(name).digits),  # rounded here, as in every table
            "values": values,
            "seeds": [seed for seed, row in seeded if name in row.metrics],
            "members": [[error_of(name, member) for member in row.members if name in member] for row in having],
        }
    return {
        "cycle": rows[0].cycle,
        "sparsity": significant(100 * statistics.fmean(row.sparsity for row in rows), 8),
        "cost": significant(statistics.fmean(row.cost for row in rows)),
        "training": significant(statistics.fmean(row.training_macs for row in rows)),
        "macs": significant(statistics.fmean(row.macs for row in rows)),
        "metrics": measured,
        "densities": [significant(100 * statistics.fmean(row.densities.get(name, 0.0) for row in rows), 4) for name in layers],
    }


def shown_at_first(all_series: Sequence[Series]) -> set[int]:
    """Of each recipe few enough lines to be told apart: SWAMP, IMP, and those that are best at the highest sparsity that most have."""
    first: set[int] = set()
    for _, group in by_recipe(all_series):
        metric, columns = metrics_of(group)[0], columns_of(group)
        table = cells(group, columns, metric)
        at = common_column(table, len(columns))
        means = {series.name: cell.mean for series, line in zip(group, table, strict=True) if (cell := line[at])}
        names = dict.fromkeys([*PREFERRED, *best_first(means, metric), *(series.name for series in group)])
        chosen = [series for name in names for series in group if series.name == name][:FEW]
        first |= {index for index, series in enumerate(all_series) if series in chosen}
    return first


def layers_of(series: Series) -> list[str]:
    row = next((row for row in series.rows), None)
    return layer_names(row, series.directories) if row else []


def training_curves(all_series: Sequence[Series]) -> dict[str, Any]:
    """Loss and learning rate of each training, by epoch. Particles share their learning rates, which are stored once."""
    runs = []
    for index, run in ((index, run) for index, series in enumerate(all_series) for run in series.runs):
        curves: dict[str, list[dict[str, Any]]] = {}
        for record in run.epochs():
            curves.setdefault(record["training"], []).append(record)
        if curves:
            runs.append((index, run.seed, curves))
    total = sum(len(records) for _, _, curves in runs for records in curves.values())
    step = -(-total // MAX_EPOCHS) or 1
    rates: dict[tuple[Any, ...], int] = {}
    training = [
        {
            "series": series,
            "seed": seed,
            "curves": [
                {
                    "label": label,
                    "stage": stage(label),
                    "epochs": len(records),
                    "loss": [number(record.get("loss")) for record in records[::step]],
                    "rate": rates.setdefault(tuple(number(record.get("learning_rate")) for record in records[::step]), len(rates)),
                }
                for label, records in curves.items()
            ],
        }
        for series, seed, curves in runs
    ]
    return {"training": training, "rates": [list(rate) for rate in rates], "epochStep": step}


def number(value: Any) -> float | None:
    found = finite(value)
    return None if found is None else significant(found, 4)


def stage(label: str) -> str:
    """Trainings that differ in their particle alone are one stage.

    >>> stage("cycle 3, particle 1"), stage("ticket")
    ('cycle 3', 'ticket')
    """
    return re.sub(r", particle \d+$", "", label)
