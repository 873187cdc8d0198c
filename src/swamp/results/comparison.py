"""The table that compares methods, and the numbers in it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from swamp.drawing.numbers import format_of, over_seeds
from swamp.drawing.tables import Table
from swamp.results.cells import Cell, Column, cells, columns_of, metrics_of
from swamp.results.notes import notes_of
from swamp.results.paper import paper_numbers
from swamp.results.series import Series, grouped, main_metrics, reached
from swamp.results.stored_run import LeftOut
from swamp.store.records import RowRecord

FEW = 3  # so many methods stand side by side
Part = tuple[list[str], list[list[str]], dict[tuple[int, int], int]]  # header, body, ranks


def comparisons(all_series: Sequence[Series], left_out: Sequence[LeftOut] = ()) -> list[Table]:
    """A table a recipe; what could not be read is said below the last."""
    groups = grouped(all_series)
    tables = [comparison(group, f"On the test set of {recipe}" if len(groups) > 1 else "On the test set") for recipe, group in groups]
    if left_out:
        damages = [f"{'damaged: ' if one.damaged else ''}{one}" for one in left_out]
        tables[-1] = tables[-1]._replace(note="\n".join(filter(None, [tables[-1].note, *damages])))
    return tables


def comparison(group: Sequence[Series], title: str) -> Table:
    """Of one recipe: the main metrics of each method at each sparsity; mean ± standard deviation over seeds; the paper's own numbers where
    it has some. A few methods stand side by side, with their particles; many stand one below the other."""
    table = side_by_side if len(group) <= FEW else one_below_the_other
    header, body, ranks = table(group, columns_of(group))
    unfinished = [str(run.directory) for series in group for run in series.runs if not run.finished]
    notes = notes_of(group, inexact=any(" @ " in cell for line in body for cell in line[1:]))
    notes += [f"not finished: {', '.join(unfinished)}"] if unfinished else []
    return Table(title, header, body, "\n".join(notes), ranks)


def side_by_side(all_series: Sequence[Series], columns: Sequence[Column]) -> Part:
    """A line for each sparsity. Methods are ranked by their networks; particles are their own affair."""
    header: list[str] = ["sparsity %"]
    upright: list[list[str]] = []
    ranks: dict[tuple[int, int], int] = {}
    for index, series in enumerate(all_series):
        found = [series.at(column.density) for column in columns]
        metrics = next((main_metrics(row) for rows in found for row in rows), [])
        for number, metric in enumerate(metrics):
            line = cells(all_series, columns, metric)[index]
            ranks |= {(place, len(header)): cell.rank for place, cell in enumerate(line) if cell and cell.rank}
            header.append(_heading(series.label, series, metric, number))
            upright.append([_text(cell) for cell in line])
            if theirs := paper_line(series, line, metric):
                header.append("the paper's")
                upright.append(theirs)
        if any(row.members for rows in found for row in rows):
            for number, metric in enumerate(metrics):
                header.append(_heading("its particles'", series, metric, number))
                upright.append([_particles(metric, rows, column) for rows, column in zip(found, columns, strict=True)])
    body = [[column.label, *(values[index] for values in upright)] for index, column in enumerate(columns)]
    return header, body, ranks


def _heading(owner: str, series: Series, metric: str, number: int) -> str:
    label = format_of(metric).label
    return label if number else f"{owner} {label}{series.seeds_shown}"


def one_below_the_other(all_series: Sequence[Series], columns: Sequence[Column]) -> Part:
    """A line for each method: the metric that counts at each sparsity. It may not be the same for all; those of one metric are ranked."""
    counting = [next((row.metric for row in series.rows), "accuracy") for series in all_series]
    lines: dict[int, list[Cell | None]] = {}
    for metric in dict.fromkeys(counting):
        places = [index for index, its in enumerate(counting) if its == metric]
        lines |= dict(zip(places, cells([all_series[index] for index in places], columns, metric), strict=True))
    labels = dict.fromkeys(format_of(metric).label for metric in counting)
    header = [f"{', '.join(labels)} at sparsity %", *(column.label for column in columns)]
    body: list[list[str]] = []
    ranks: dict[tuple[int, int], int] = {}
    for index, (series, metric) in enumerate(zip(all_series, counting, strict=True)):
        line = lines[index]
        ranks |= {(len(body), place): cell.rank for place, cell in enumerate(line, 1) if cell and cell.rank}
        body.append([series.label + series.seeds_shown, *map(_text, line)])
        if theirs := paper_line(series, line, metric):
            body.append([f"{series.label}, the paper's", *theirs])
    return header, body, ranks


def paper_line(series: Series, line: Sequence[Cell | None], metric: str) -> list[str]:
    """The paper's numbers at the cells of a line; nothing where it has none."""
    said = paper_numbers(series, metric)
    numbers = [said.get(cell.cycle, "–") if cell else "–" for cell in line]
    return numbers if set(numbers) != {"–"} else []


def _text(cell: Cell | None) -> str:
    return _at_other(cell.text, cell.other_sparsity) if cell else "–"


def _particles(metric: str, rows: Sequence[RowRecord], column: Column) -> str:
    return _at_other(over_seeds(metric, [row.members for row in rows]), reached(rows, column.density))


def _at_other(text: str, sparsity: str) -> str:
    return f"{text} @ {sparsity}" if sparsity else text


def records(all_series: Sequence[Series]) -> Iterator[dict[str, Any]]:
    """Every number that was measured, for other programs: a record for each method, sparsity and metric, of its network and of its
    particles (their mean in each run). Values are those of results.json, one a seed; ranks are those within a recipe."""
    for _, group in grouped(all_series):
        yield from records_of(group)


def records_of(group: Sequence[Series]) -> Iterator[dict[str, Any]]:
    columns = columns_of(group)
    owners: dict[str, Callable[[RowRecord], list[dict[str, float]]]] = {
        "network": lambda row: [row.metrics],
        "particles": lambda row: row.members,
    }
    for metric in metrics_of(group):
        ranked = cells(group, columns, metric)
        for series, line in zip(group, ranked, strict=True):
            for column, cell in zip(columns, line, strict=True):
                for owner, networks in owners.items():
                    measured = [
                        (seed, row, statistics.fmean(numbers))
                        for seed, row in series.seeded(column.density)
                        if (numbers := [network[metric] for network in networks(row) if metric in network])
                    ]
                    if not measured:
                        continue
                    seeds, rows, values = map(list, zip(*measured, strict=True))
                    yield {
                        "recipe": series.recipe,
                        "method": series.method,
                        "label": series.label,
                        "sparsity": column.sparsity,
                        "reached_sparsity": statistics.fmean(row.sparsity for row in rows),
                        "metric": metric,
                        "of": owner,
                        "mean": statistics.fmean(values),
                        "deviation": statistics.stdev(values) if len(values) > 1 else None,
                        "rank": (cell.rank or None) if cell and owner == "network" else None,
                        "paper": paper_numbers(series, metric).get(rows[0].cycle) if owner == "network" else None,
                        "seeds": seeds,
                        "values": values,
                    }
