"""What people see while they wait, and tables on their screen."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table as RichTable
from rich.text import Text

from swamp.drawing.formats import legend, visible
from swamp.drawing.numbers import duration, format_of, shown
from swamp.drawing.tables import Table
from swamp.engines.engine import Progress as Event
from swamp.report.tables import prunable_table
from swamp.results.series import main_metrics
from swamp.store.records import RowRecord
from swamp.tasks.task import Task

PLAIN_SECONDS = 10.0  # between two lines of a log


def print_table(table: Table, plain: bool = False) -> None:
    """Ruled on a terminal; elsewhere, or where that is asked for, plain, aligned and never cut."""
    if sys.stdout.isatty() and not plain:
        _print_ruled(table)
    else:
        print(plain_text(table), end="")


MARKS = {1: "*", 2: "+"}


def plain_text(table: Table) -> str:
    """Aligned; what is best or second best of those compared has a sign behind it, and all others of its column a space."""
    ranked = {column for _, column in table.ranks}
    marked = [
        [cell + MARKS.get(table.ranks.get((i, j), 0), " " if j in ranked else "") for j, cell in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    widths = [max(map(len, column)) for column in zip(table.header, *marked, strict=True)]
    lines = [table.title]
    for row in (table.header, *marked):
        cells = (cell.rjust(w) if _is_numeric(table, i) else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join(cells).rstrip())
    meanings = {1: "*: best", 2: "+: second best"}
    notes = [table.note, ", ".join(text for rank, text in meanings.items() if rank in table.ranks.values())]
    return visible("\n".join([*lines, *filter(None, notes)])) + "\n"


def print_prunable(task: Task) -> None:
    """What will be pruned."""
    print_table(prunable_table(task))


def _print_ruled(table: Table) -> None:
    """Headings and texts may break between words, numbers never; a terminal too narrow for that wraps the lines itself."""
    console = Console()
    rich = RichTable(title=escape(table.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=0)
    for index, name in enumerate(table.header):
        numeric = _is_numeric(table, index)
        unbroken = [*name.split(), *(row[index] for row in table.rows if numeric)]
        rich.add_column(
            escape(name),
            justify="right" if numeric else "left",
            vertical="bottom" if numeric else "top",
            min_width=max(map(len, unbroken), default=0),  # a column of labels may have no heading
        )
    styles = {1: "bold", 2: "underline"}
    for i, row in enumerate(table.rows):
        rich.add_row(*(Text(cell, style=styles.get(table.ranks.get((i, j), 0), "")) for j, cell in enumerate(row)))
    needed = sum(column.min_width or 0 for column in rich.columns) + len(rich.columns) + 2
    console.print(rich, width=max(console.width, needed), crop=False)
    for note in filter(None, [table.note, legend(table)]):
        console.print(escape(note), style="yellow")


def _is_numeric(table: Table, column: int) -> bool:
    """Numbers stand to the right, words to the left."""
    return all(row[column][:1].isdigit() or row[column] in ("", "–") for row in table.rows)


class Pace:
    """How far a run is and how long it will take, from epochs."""

    def __init__(self) -> None:
        self.total = 0
        self.done: dict[str, int] = {}
        self.trained = 0
        self.begin: float | None = None  # the first epoch's end: what comes before is mostly starting up

    def count(self, event: Event) -> None:
        if event.unit != "epoch":
            return
        if event.trained and self.begin is None:
            self.begin, self.trained = time.monotonic(), -event.trained
        if event.epoch > self.done.get(event.key, 0):  # several runs may tell of one training that they share
            self.done[event.key] = event.epoch
            self.trained += event.trained

    def seed(self, trained: int, seconds: float) -> None:
        """Begin with what somebody else measured; of several, who work side by side."""
        begin = time.monotonic() - seconds
        self.begin, self.trained = min(begin, self.begin or begin), self.trained + trained

    @property
    def share(self) -> float:
        return sum(self.done.values()) / self.total if self.total else 0.0

    @property
    def seconds_left(self) -> float:
        left = max(self.total - sum(self.done.values()), 0)
        return left * (time.monotonic() - self.begin) / self.trained if self.begin and self.trained > 0 else math.inf


def summary(result: RowRecord) -> str:
    """A row in a line."""
    values = [member[result.metric] for member in result.members]
    particles = f" (particles {shown(result.metric, min(values))} … {shown(result.metric, max(values))})" if values else ""
    measured = [f"{format_of(name).label} {shown(name, result.metrics[name])}" for name in main_metrics(result)]
    collapsed = f"; empty layers: {', '.join(result.empty_layers)}" if result.empty_layers else ""
    sparsity = f"cycle {result.cycle}: sparsity % {100 * result.sparsity:.2f}"
    return ", ".join([sparsity, measured[0] + particles, *measured[1:]]) + collapsed


class Plain:
    """A listener for logs: a line a row, and one now and then between."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.last = time.monotonic()

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def planned(self, num_epochs: int) -> None:
        self.pace.total += num_epochs

    def epoch(self, event: Event) -> None:
        self.pace.count(event)
        if event.is_news and time.monotonic() - self.last >= PLAIN_SECONDS:
            self.last = time.monotonic()
            place = f"{event.label}: {event.unit} {event.epoch}/{event.epochs}"
            if event.unit == "epoch":
                place += f", loss {event.loss:.4f}; {100 * self.pace.share:.0f} % done, {duration(self.pace.seconds_left)} left"
            self.say(place)

    def row(self, result: RowRecord, run: str = "") -> None:
        self.say(run + summary(result))

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Quiet(Plain):
    """A listener that passes on what somebody should know, and nothing else."""

    def epoch(self, event: Event) -> None: ...

    def row(self, result: RowRecord, run: str = "") -> None: ...


class Live:
    """A listener for terminals: rows above, and below them bars that move."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.console = Console(stderr=True)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )
        self.whole = self.bars.add_task("[bold]epochs", total=None, note="", visible=False)
        self.jobs: dict[str, TaskID] = {}

    def __enter__(self) -> Live:
        self.bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for bar in self.jobs.values():
            self.bars.remove_task(bar)
        self.bars.stop()

    def planned(self, num_epochs: int) -> None:
        self.pace.total += num_epochs
        self.bars.update(self.whole, total=self.pace.total, visible=True)

    def epoch(self, event: Event) -> None:
        self.pace.count(event)
        left = duration(self.pace.seconds_left)
        self.bars.update(self.whole, completed=sum(self.pace.done.values()), note=f"{left} left")
        if not event.is_news:
            return
        if event.key not in self.jobs:
            self.jobs[event.key] = self.bars.add_task(event.label, total=event.epochs, note="")
        self.bars.update(
            self.jobs[event.key], completed=event.epoch, note=f"loss {event.loss:.4f}" if event.unit == "epoch" else event.unit
        )
        if event.epoch >= event.epochs:
            self.bars.remove_task(self.jobs.pop(event.key))

    def row(self, result: RowRecord, run: str = "") -> None:
        self.console.print(escape(run + summary(result)), highlight=False)

    def say(self, text: str) -> None:
        self.console.print(escape(text), style="yellow", highlight=False)


class Named:
    """The listener of one run among several that share a screen. How much they will train together was said before: a training that
    several of them need counts once."""

    def __init__(self, whole: Live | Plain, name: str) -> None:
        self.whole, self.name = whole, f"{name}: "

    def planned(self, num_epochs: int) -> None: ...

    def epoch(self, event: Event) -> None:
        self.whole.epoch(replace(event, label=self.name + event.label))

    def row(self, result: RowRecord) -> None:
        self.whole.row(result, self.name)

    def say(self, text: str) -> None:
        self.whole.say(self.name + text)


class Apart(Named):
    """The listener of one run among several that share a screen and know nothing of each other."""

    def planned(self, num_epochs: int) -> None:
        self.whole.planned(num_epochs)

    def epoch(self, event: Event) -> None:
        super().epoch(replace(event, key=self.name + event.key))


class Analysing:
    """Who watches an analysis: what it will take, how far it is."""

    def __init__(self, plain: bool = False, quiet: bool = False) -> None:
        self.plain, self.quiet, self.lines = plain, quiet, plain or not sys.stderr.isatty()
        self.seconds: dict[str, float] = {}
        self.total = self.finished = 0.0  # in seconds, as estimated
        self.early: dict[str, int] = {}  # done while it was found out how long things take
        self.start = self.last = time.monotonic()
        self.console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[note]}"))
        self.bar = Progress(*columns, console=self.console, disable=self.lines or quiet)
        self.task = self.bar.add_task("", total=1.0, note="", visible=False)

    def __enter__(self) -> Analysing:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()

    def begin(self, left: Mapping[str, Mapping[str, int]], seconds: Callable[[], dict[str, float]]) -> None:
        self.seconds = seconds()
        early = sum(self.seconds.get(kind, 0.0) * units for kind, units in self.early.items())
        rows = []
        for name, counts in left.items():
            cost = sum(self.seconds.get(kind, 0.0) * count for kind, count in counts.items())
            amount = ", ".join(f"{count} {kind}" for kind, count in counts.items() if kind)
            rows.append([name, amount or "nothing new", f"{'up to' if name == 'hessian' and cost else 'about'} {duration(cost)}"])
            self.total += cost
        each = ", ".join(f"{1000 * value:.0f} ms for each of the {kind}" for kind, value in self.seconds.items())
        note = f"measured just now: {each}" if each else ""
        if not self.quiet:
            print_table(Table("What it will take", ["analysis", "how much", "time"], rows, note), self.plain)
        self.total = max(self.total - early, 0.0)
        self.bar.update(self.task, visible=True)
        self.start = time.monotonic()

    def done(self, what: str, kind: str, units: int) -> None:
        if not self.seconds:
            self.early[kind] = self.early.get(kind, 0) + units
        self._advance(what, self.seconds.get(kind, 0.0) * units)

    def spared(self, kind: str, units: int) -> None:
        self.total -= self.seconds.get(kind, 0.0) * units

    def epoch(self, event: Event) -> None:
        self._advance(f"{event.label}, epoch {event.epoch}", self.seconds.get("epochs", 0.0) * event.trained)

    def _advance(self, what: str, seconds: float) -> None:
        self.finished += seconds
        share = min(self.finished / self.total, 1.0) if self.total else 1.0
        spent = time.monotonic() - self.start
        left = f"{100 * share:.0f} % done, {duration(spent * (1 - share) / share) if share else '?'} left"
        self.bar.update(self.task, description=what, completed=share, note=left)
        if self.lines and not self.quiet and self.seconds and time.monotonic() - self.last >= PLAIN_SECONDS:
            self.last = time.monotonic()
            self.say(f"{what}: {left}")

    def say(self, text: str) -> None:
        self.console.print(escape(text), highlight=False, soft_wrap=True)


def listener(quiet: bool = False, plain: bool = False) -> Live | Plain:
    """Bars where somebody watches, lines in a log."""
    if quiet:
        return Quiet()
    return Live() if sys.stderr.isatty() and not plain else Plain()
