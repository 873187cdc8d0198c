"""Which weights survive: the density of each layer, and how alike the masks of a run's cycles are."""

from __future__ import annotations

import math
import os
import shlex
from collections import Counter
from collections.abc import Container, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from swamp.analyses import analysis
from swamp.analyses.analysis import Arrays, BetweenRuns, Line, PageResults, RowResult, Settings, StoredResult, cycle_fields
from swamp.analyses.presentation import CYCLE, cycle_cells, titled
from swamp.analyses.study import Study, Work
from swamp.drawing.canvas import GREY, STYLES, density_axes, few, shades, text, tidy
from swamp.drawing.markup import Section, chart, command_line, element, section
from swamp.drawing.tables import Table
from swamp.landscape.geometry import Overlap, comparable, overlap
from swamp.store.analysis_store import AnalysisStore
from swamp.store.records import read_rows

name = "masks"
summary = "Density of each layer over the cycles; overlap of masks between cycles, and between runs where several are given."
needs = "last"
heads = CYCLE
MOST_LINES = 6  # So many pairs of runs are told apart as lines; the page has the same number (landscape.js).
MOST_NUMBERS = 10  # Tables of colours with up to so many rows have numbers in them.


class Row(RowResult, frozen=True, kw_only=True):
    densities: dict[str, float]  # by layer, in the order of the network


class Result(analysis.Result, frozen=True, kw_only=True):
    rows: list[Row]
    overlap: list[list[Overlap]]  # of each row with each

    def __post_init__(self) -> None:
        if [len(line) for line in self.overlap] != [len(self.rows)] * len(self.rows):
            raise ValueError("the table of overlaps has another size than the list of rows")


def plan(study: Study, settings: Settings) -> Work:
    def finish() -> tuple[Result, Arrays]:
        masks = [study.mask(row) for row in study.rows]
        table = [[overlap(a, b) for b in masks] for a in masks]
        # results.json sorts names; here they stand in the order of the network
        rows = [Row(**cycle_fields(row), densities={layer: row.densities[layer] for layer in study.task.prunable}) for row in study.rows]
        return Result(run=study.identity, rows=rows, overlap=table), {}

    return Work(finish)


def lines(result: Result) -> list[Line]:
    """Show the densest and the sparsest layer, and the overlap with the mask of the row before."""
    found = []
    for index, row in enumerate(result.rows):
        densities = row.densities.values()
        numbers: dict[str, float | None] = {"densest layer %": 100 * max(densities), "sparsest layer %": 100 * min(densities)}
        if index:
            before = result.overlap[index][index - 1]
            numbers |= {"IoU with the mask before": before.iou, "by chance": before.chance}
        found.append(Line(cycle_cells(row), numbers))
    return found


def figure(plt: Any, found: StoredResult[Result]) -> Any:
    result, rows = found.result, found.result.rows
    layers = list(rows[0].densities)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 4.3), layout="constrained", width_ratios=(3, 2))
    for row, colour, label in zip(rows, shades(plt, len(rows)), few([row.percentage for row in rows], 16), strict=True):
        values = [100 * row.densities[layer] for layer in layers]
        left.plot(range(len(layers)), values, color=colour, marker=".", label=label)
    density_axes(left, layers)
    left.legend(frameon=False, fontsize=8, title="sparsity", title_fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    image = _draw_overlaps(right, result.overlap, few([str(row.cycle) for row in rows], 14))
    right.set_xlabel("cycle")
    right.set_ylabel("cycle")
    right.set_title("overlap of masks: IoU (by chance)", fontsize=9)
    figure.colorbar(image, ax=right, shrink=0.8)
    return titled(figure, result, "Masks")


def _draw_overlaps(axes: Any, table: Sequence[Sequence[Overlap | Pair | None]], names: Sequence[str]) -> Any:
    """Draw how alike masks are, each with each, as a table of colours, and return what a colour bar is made of. Few have their numbers."""
    image = axes.imshow([[cell.iou if cell else math.nan for cell in line] for line in table], vmin=0, vmax=1, cmap="viridis")
    for i, line in enumerate(table) if len(table) <= MOST_NUMBERS else ():
        for j, cell in enumerate(line):
            if cell:
                ink = "black" if cell.iou > 0.6 else "white"
                axes.text(j, i, f"{cell.iou:.2f}\n({cell.chance:.2f})", ha="center", va="center", fontsize=7, color=ink)
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    return image


def show_section(page: PageResults) -> Section | None:
    """Show the masks of each run, and the pairs of runs that are both in the report."""
    masks = []
    for keys, stored in page.runs:
        result = stored.result
        rows = [cycle_fields(row) for row in result.rows]
        tables = {kind: [[getattr(cell, kind) for cell in line] for line in result.overlap] for kind in ("iou", "beyond")}
        masks.append({**keys, "rows": rows, **tables})
    pairs, commands = [], []
    for stored in page.between_runs:
        paths = {run: _directory_of(run, stored.directory, page.labels) for pair in stored.result.pairs for run in pair.runs}
        named = [(pair, [page.labels.get(paths[run]) for run in pair.runs]) for pair in stored.result.pairs]
        shown = [{**msgspec.to_builtins(pair), "runs": runs} for pair, runs in named if all(runs)]
        pairs += shown
        if shown:
            compared = shlex.join(os.path.relpath(path) for path in paths.values())
            commands.append(element("pre", command_line(f"swamp analyse {compared} --masks")))
    if not masks and not pairs:
        return None
    return section(
        "Masks",
        "How alike the masks are",
        "Intersection over union of the weights alive in each; beyond chance: 0 for masks that agree as much as independent ones of the "
        "same densities would, 1 for equal masks.",
        chart("masks") if masks else None,
        chart("pairs") if pairs else None,
        *commands,
        data={"masks": masks, "pairs": pairs},
    )


def _directory_of(run: str, place: Path, known: Container[Path]) -> Path:
    """Return the directory of a run that `Pair.runs` names, in a result that is stored in `place`. Earlier versions of swamp stored
    directories as the user typed them."""
    moved, typed = (place.parent / run).resolve(), Path(run).resolve()
    return typed if typed in known and moved not in known else moved


# -- between runs ----------------------------------------------------------------------------------------------------------------


class Pair(RowResult, frozen=True, kw_only=True):
    """The masks of two runs at one cycle, compared as in `landscape.geometry.Overlap`."""

    runs: tuple[str, str]  # their directories, relative to the parent of the directory that stores the result
    iou: float
    chance: float
    beyond: float


class OverlapResult(Struct, frozen=True, kw_only=True):
    pairs: list[Pair]


def compare_masks(directories: Sequence[Path], place: Path, cycles: Sequence[int] | None = None) -> OverlapResult:
    """Compare the masks of each two runs of one network, at each cycle that both have. The result is to be stored in `place`."""
    pairs = []
    names = {path: os.path.relpath(path.resolve(), place.resolve().parent) for path in directories}
    rows = {path: {row.cycle: row for row in read_rows(path)} for path in directories}
    for first, second in combinations(directories, 2):
        for cycle in sorted(rows[first].keys() & rows[second].keys()):
            if cycles is not None and cycle not in cycles:
                continue
            a, b = (AnalysisStore(path).load_mask(rows[path][cycle].mask) for path in (first, second))
            if a is not None and b is not None and comparable(a, b):
                runs = (names[first], names[second])
                pairs.append(Pair(runs=runs, **cycle_fields(rows[first][cycle]), **msgspec.structs.asdict(overlap(a, b))))
    if not pairs:
        raise ValueError("masks of different runs: no two of these are of one network with a cycle in common")
    return OverlapResult(pairs=pairs)


def overlap_table(result: OverlapResult) -> Table:
    body = [[*pair.runs, str(pair.cycle), *(f"{value:.4f}" for value in (pair.iou, pair.chance, pair.beyond))] for pair in result.pairs]
    return Table("overlap of masks between runs", ["run", "and run", "cycle", "IoU", "by chance", "beyond chance"], body)


def overlap_figure(plt: Any, found: StoredResult[OverlapResult]) -> Any:
    """Draw a line over the cycles for each of a few pairs; many pairs are a table of colours at one cycle."""
    pairs = found.result.pairs
    return (_overlap_lines if len({pair.runs for pair in pairs}) <= MOST_LINES else _overlap_table_of_colours)(plt, pairs)


def _overlap_lines(plt: Any, all_pairs: Sequence[Pair]) -> Any:
    compared = list(dict.fromkeys(pair.runs for pair in all_pairs))
    figure, axes = plt.subplots(figsize=(6.6, 4.2), layout="constrained")
    for runs, (colour, marker) in zip(compared, STYLES, strict=False):
        pairs = [pair for pair in all_pairs if pair.runs == runs]
        cycles = [pair.cycle for pair in pairs]
        label = text(" and ".join(Path(run).name for run in runs))
        axes.plot(cycles, [pair.iou for pair in pairs], color=colour, marker=marker, label=label)
        axes.plot(cycles, [pair.chance for pair in pairs], color=colour, linestyle=":", linewidth=1)
    axes.plot([], [], color=GREY, linestyle=":", label="by chance, at these densities")
    axes.set_ylim(0, 1.05)
    axes.set_xticks(sorted({pair.cycle for pair in all_pairs}))
    axes.set_xlabel("cycle")
    axes.set_ylabel("overlap of masks (IoU)")
    axes.set_title("Masks of different runs", fontsize=11)
    tidy(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _overlap_table_of_colours(plt: Any, all_pairs: Sequence[Pair]) -> Any:
    """Draw the pairs at the last of the cycles that most of them have."""
    sizes = Counter(pair.cycle for pair in all_pairs)
    at = max(sizes, key=lambda cycle: (sizes[cycle], cycle))
    runs = list(dict.fromkeys(run for pair in all_pairs for run in pair.runs))
    cells = {frozenset(pair.runs): pair for pair in all_pairs if pair.cycle == at}
    side = min(2.6 + 0.55 * len(runs), 12)
    figure, axes = plt.subplots(figsize=(side + 0.8, side), layout="constrained")
    table = [[cells.get(frozenset((first, second))) for second in runs] for first in runs]
    image = _draw_overlaps(axes, table, [text(Path(run).name) for run in runs])
    axes.tick_params(axis="x", rotation=90)
    figure.colorbar(image, ax=axes, shrink=0.8)
    axes.set_title(f"overlap of masks at cycle {at}, {next(iter(cells.values())).percentage} sparse: IoU (by chance)", fontsize=9)
    return figure


between_runs = BetweenRuns("overlap", OverlapResult, compare_masks, overlap_table, overlap_figure)
