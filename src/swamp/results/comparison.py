"""Tables that compare configurations: their metrics at each sparsity with the notes below them, and differences between runs that share
seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from swamp.core.errors import nearest
from swamp.core.metric import Metric
from swamp.drawing.numbers import over_seeds, percent
from swamp.drawing.tables import Table, visible
from swamp.results.cells import (
    Cell,
    Level,
    at_other_sparsity,
    cells,
    few_seeds,
    is_inexact,
    levels_of,
    make_cell,
    metrics_of,
    ranked_text,
    reached,
)
from swamp.results.paper import paper_numbers, shortened
from swamp.results.series import Series, by_recipe, equal_rows_note, main_metrics, seeds_text
from swamp.results.statistics import EXPLAINED, difference_text, paired
from swamp.results.stored_run import LeftOut, StoredRun
from swamp.store.records import RowRecord
from swamp.tasks import custom, own_loop

FEW = 3  # up to so many methods stand side by side
MOST_NOTES = 4  # so many notes of a method's rows stand below a table
BASELINE = "imp"  # the method that the others are compared with
OTHER_SPARSITY = "@: at this sparsity instead, which is what the method reached"
OVER_SEEDS = "mean ± standard deviation over n seeds"
PAPER = "the paper's numbers are of its whole schedule and three seeds"


def comparisons(all_series: Sequence[Series], left_out: Sequence[LeftOut] = (), metric: str | None = None) -> list[Table]:
    """Return a table for each recipe, of one metric or of those that count. Notes below the last one name the runs that could not be
    read."""
    require_metric(all_series, metric)
    groups = by_recipe(all_series, keep_empty=True)
    titles = [f"On the test set of {recipe}" if len(groups) > 1 else "On the test set" for recipe, _ in groups]
    tables = [comparison(group, title, metric) for title, (_, group) in zip(titles, groups, strict=True)]
    if left_out:
        damages = [f"{'damaged: ' if one.damaged else ''}{one}" for one in left_out]
        tables[-1] = tables[-1]._replace(note="\n".join(filter(None, [tables[-1].note, *damages])))
    return tables


def require_metric(all_series: Sequence[Series], metric: str | None) -> None:
    """Refuse a metric that no run has."""
    known = {name for series in all_series for row in series.rows for name in row.described}
    if metric is not None and metric not in known:
        raise ValueError(f"no run has the metric {metric!r}; {nearest(metric, sorted(known))}")


def found_metric(series: Series, asked: str | None) -> Metric | None:
    """Return the metric that was asked for, or else the one that counts; None where no row has it. Only later runs may have it."""
    return next((found for row in series.rows if (found := row.described.get(row.metric if asked is None else asked))), None)


def comparison(group: Sequence[Series], title: str, metric: str | None = None) -> Table:
    """Compare the methods of one recipe at each sparsity: mean ± standard deviation over seeds, and the paper's own numbers where it has
    some. A few methods stand side by side, with their particles; many stand one below the other."""
    levels = levels_of(group)
    table = (side_by_side if len(group) <= FEW else one_below_the_other)(group, levels, title, metric)
    unfinished = [str(run.directory) for series in group for run in series.runs if not run.finished]
    notes = [OVER_SEEDS] if any(series.seed_count_text for series in group) else []
    lacking = [series.label for series in group if series.rows and not found_metric(series, metric)]
    notes += [f"without {metric}: {visible(', '.join(lacking))}"] if lacking else []
    notes += notes_of(group)
    notes += [f"not finished: {', '.join(unfinished)}"] if unfinished else []
    return table._replace(note="\n".join(notes))


def side_by_side(all_series: Sequence[Series], levels: Sequence[Level], title: str, asked: str | None) -> Table:
    """Return a table with a line for each sparsity. Methods are ranked by their networks; particles have no ranks."""
    columns: list[tuple[str, Sequence[str]]] = [("sparsity %", [level.label for level in levels])]  # heads, and the texts below them
    for index, series in enumerate(all_series):
        row = next(iter(series.rows), None)
        metrics = main_metrics(row) if row and asked is None else [found for found in [found_metric(series, asked)] if found]
        for metric in metrics:
            line = cells(all_series, levels, metric)[index]
            head = f"{series.label} {metric.label}{series.seed_count_text if metric is metrics[0] else ''}"
            columns.append((head, [ranked_text(cell, len(series.runs)) for cell in line]))
            if quoted := paper_line(series, line, metric):
                columns.append(("the paper's", quoted))
        for metric in metrics if any(row.members for row in series.rows) else ():
            head = f"{series.label} particles' {metric.label}{series.seed_count_text if metric is metrics[0] else ''}"
            columns.append((head, [_particles(series, metric, level) for level in levels]))
    return Table(title, [head for head, _ in columns], list(zip(*(texts for _, texts in columns), strict=True)))


def _particles(series: Series, metric: Metric, level: Level) -> str:
    rows = [row for row in series.rows_at(level.density) if any(metric.name in member for member in row.members)]
    text = over_seeds(metric, [row.members for row in rows]) + few_seeds(len(rows), len(series.runs))
    return at_other_sparsity(text, reached(rows, level.density))


def one_below_the_other(all_series: Sequence[Series], levels: Sequence[Level], title: str, asked: str | None) -> Table:
    """Return a table with a line for each method: a metric, or the one that counts, at each sparsity. Methods of one metric are ranked."""
    counting = [found_metric(series, asked) for series in all_series]
    lines: list[list[str]] = []
    for index, (series, metric) in enumerate(zip(all_series, counting, strict=True)):
        if metric is None:
            lines.append([series.label + series.seed_count_text, *["–"] * len(levels)])
            continue
        alike = [place for place, other in enumerate(counting) if other and other.name == metric.name]
        line = cells([all_series[place] for place in alike], levels, metric)[alike.index(index)]
        lines.append([series.label + series.seed_count_text, *(ranked_text(cell, len(series.runs)) for cell in line)])
        if quoted := paper_line(series, line, metric):
            lines.append([f"{series.label}, the paper's", *quoted])
    labels = dict.fromkeys(metric.label for metric in counting if metric)
    return Table(title, [f"{', '.join(labels)} at sparsity %".strip(), *(level.label for level in levels)], lines)


def paper_line(series: Series, line: Sequence[Cell | None], metric: Metric) -> list[str]:
    """Return the paper's numbers at the cells of a line; nothing where it has none."""
    said = paper_numbers(series, metric.name)
    numbers = [said.get(cell.cycle, "–") if cell else "–" for cell in line]
    return numbers if set(numbers) != {"–"} else []


def notes_of(all_series: Sequence[Series]) -> list[str]:
    """Return the notes of a table of series."""
    selected = [series.label for series in all_series if selected_by_validation(series.rows)]
    metrics = metrics_of(all_series)
    quoted = [series for series in all_series if any(paper_numbers(series, metric.name).keys() & series.cycles for metric in metrics)]
    changed = [series.label for series in quoted if shortened(series)]
    same = {series.label: equal_rows_note({run.seed: run.rows for run in series.runs}) for series in all_series}
    other = f"; trainings have another length here: {', '.join(changed)}" if changed else ""
    limits = dict.fromkeys(f"{series.label}: {run.limit_note}" for series in all_series for run in series.runs if run.limit_note)
    found = [
        *limits,
        *mixed_tasks(all_series),
        *(f"{label}: {note}" for label, note in same.items() if note),
        f"{OTHER_SPARSITY}; such a row has no rank" if is_inexact(all_series) else "",
        selection_note(selected),
        f"{PAPER}{other}" if quoted else "",
        *collapses(all_series),
        *(note for series in all_series for note in row_notes(series)),
    ]
    return [visible(note) for note in found if note]  # Each is one line, whatever a file holds.


def row_notes(series: Series) -> list[str]:
    """Return what the rows of a series note, and at which sparsities if not at all of them: a few of it where it would be longer than the
    table."""
    found = []
    for note in dict.fromkeys(note for row in series.rows for note in row.notes or ()):
        rows = [row for row in series.rows if note in (row.notes or ())]
        where = f" at {_sparsities_text(rows)} %" if {row.cycle for row in rows} < {row.cycle for row in series.rows} else ""
        found.append(f"{series.label}{where}: {note}")
    more = len(found) - MOST_NOTES
    return found if more <= 1 else [*found[:MOST_NOTES], f"{series.label}: {more} more remarks (swamp show DIR has those of a run)"]


def _sparsities_text(rows: Iterable[RowRecord]) -> str:
    """Name the sparsities of rows: all of a few, and the range of many."""
    texts = list(dict.fromkeys(map(percent, sorted(row.sparsity for row in rows))))
    return ", ".join(texts) if len(texts) <= FEW else f"{texts[0]} to {texts[-1]}"


def mixed_tasks(all_series: Sequence[Series]) -> Iterator[str]:
    """Name runs whose tasks differ though their settings are equal, such as runs on folders of other images."""
    first: dict[str, tuple[Series, StoredRun]] = {}  # by the settings of the task
    differing: dict[str, dict[str, list[int]]] = {}  # seeds by label
    for series in all_series:
        if series.settings["task"] in (custom.name, own_loop.name):
            continue  # Their fingerprints cover the init, and each seed may have an init of its own.
        of_task = str({name: value for name, value in series.settings.items() if name == "start" or name.startswith("tasks.")})
        for run in series.runs:
            if run.header["task"] != first.setdefault(of_task, (series, run))[1].header["task"]:
                differing.setdefault(of_task, {}).setdefault(series.label, []).append(run.seed)
    for of_task, seeds in differing.items():
        others = ", ".join(f"{label} ({seeds_text(found)})" for label, found in seeds.items())
        series, run = first[of_task]
        why = "other data, other weights to start from, or another version of swamp"
        yield f"the task of {others} is not that of {series.label} ({seeds_text([run.seed])}): {why}"


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


def differences(all_series: Sequence[Series], metric: str | None = None) -> list[Table]:
    """Return a table of differences for each recipe in which configurations share two seeds, of one metric or of the one that counts."""
    return [table for _, group in by_recipe(all_series) if (table := differences_of(group, metric))]


def baseline_of(group: Sequence[Series]) -> Series:
    """Return what the others of a recipe are compared with: the first of IMP, else the first."""
    return next((series for series in group if series.method == BASELINE), group[0])


def differences_of(group: Sequence[Series], asked: str | None) -> Table | None:
    """Subtract the baseline from each configuration of a recipe at each sparsity, seed by seed; None where no two seeds are shared."""
    baseline, levels = baseline_of(group), levels_of(group)
    metric = found_metric(baseline, asked)
    if metric is None:
        return None

    def values(series: Series, level: Level) -> dict[int, float]:
        cell = make_cell(series.by_seed(level.density), metric, level.density)
        return dict(cell.values) if cell else {}

    found = {
        series.label: [paired(values(series, level), values(baseline, level)) for level in levels]
        for series in group
        if series is not baseline
    }
    if not any(difference and difference.num_pairs > 1 for line in found.values() for difference in line):
        return None
    texts = {label: [difference_text(difference, metric.digits) for difference in line] for label, line in found.items()}
    sparsities = [level.label for level in levels]
    title = f"Differences in {metric.label}, each minus {baseline.label}"
    if len(group) <= FEW:
        body = [[sparsity, *line] for sparsity, *line in zip(sparsities, *texts.values(), strict=True)]
        return Table(title, ["sparsity %", *texts], body, EXPLAINED)
    return Table(title, ["at sparsity %", *sparsities], [[label, *line] for label, line in texts.items()], EXPLAINED)


def records(all_series: Sequence[Series]) -> Iterator[dict[str, Any]]:
    """Yield every number that was measured, for other programs: a record for each method, sparsity and metric, of its network and of its
    particles (their mean in each run). Values are those of results.json, one for each seed; ranks are those within a recipe."""
    for _, group in by_recipe(all_series, keep_empty=True):
        levels = levels_of(group)
        for metric in metrics_of(group):
            for series, line in zip(group, cells(group, levels, metric), strict=True):
                for level, cell in zip(levels, line, strict=True):
                    yield from _records_of(series, level, metric, cell)


def _records_of(series: Series, level: Level, metric: Metric, cell: Cell | None) -> Iterator[dict[str, Any]]:
    owners: dict[str, Callable[[RowRecord], list[dict[str, float]]]] = {
        "network": lambda row: [row.metrics],
        "particles": lambda row: row.members,
    }
    for owner, networks in owners.items():
        measured = [
            (seed, row, statistics.fmean(numbers))
            for seed, row in series.by_seed(level.density).items()
            if (numbers := [network[metric.name] for network in networks(row) if metric.name in network])
        ]
        if not measured:
            continue
        seeds, rows, values = map(list, zip(*measured, strict=True))
        yield {
            "recipe": series.recipe,
            "method": series.method,
            "label": series.label,
            "sparsity": level.sparsity,
            "reached_sparsity": statistics.fmean(row.sparsity for row in rows),
            "metric": metric.name,
            "of": owner,
            "mean": statistics.fmean(values),
            "deviation": statistics.stdev(values) if len(values) > 1 else None,
            "rank": (cell.rank or None) if cell and owner == "network" else None,
            "paper": paper_numbers(series, metric.name).get(rows[0].cycle) if owner == "network" else None,
            "seeds": seeds,
            "values": values,
        }
