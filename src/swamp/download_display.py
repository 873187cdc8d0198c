"""The progress of a download on standard error: a moving bar on a terminal, lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as RichProgress

from swamp.drawing.numbers import duration
from swamp.drawing.tables import visible
from swamp.progress_display import LINE_SECONDS
from swamp.tasks.datasets.downloading import DownloadReport


@contextmanager
def download_display(quiet: bool, plain: bool) -> Iterator[DownloadReport]:
    """Yield the function to which a download reports its progress."""
    if quiet:
        yield lambda name, done, total: None
    elif plain or not sys.stderr.isatty():
        yield DownloadLines()
    else:
        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
        with RichProgress(*columns, console=Console(stderr=True)) as bars:
            yield _moving(bars)


def _moving(bars: RichProgress) -> DownloadReport:
    tasks: dict[str, TaskID] = {}

    def report(name: str, done: int, total: int | None) -> None:
        if name not in tasks:
            tasks[name] = bars.add_task(escape(visible(name)), total=total)
        bars.update(tasks[name], completed=done, total=total)

    return report


class DownloadLines:
    """Prints a line every few seconds, and one when a file is there."""

    def __init__(self) -> None:
        self.began: dict[str, tuple[float, int]] = {}  # when, and how many bytes were there by then
        self.last_line = time.monotonic()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        start, before = self.began.setdefault(name, (now, done))
        if done != total and now - self.last_line < LINE_SECONDS:
            return
        self.last_line = now
        speed = (done - before) / (now - start) if now > start else 0.0
        share = f"{100 * done / total:.0f} % of {total / 1e6:.1f} MB" if total else f"{done / 1e6:.1f} MB"
        left = f", {duration((total - done) / speed)} left" if total and speed and done < total else ""
        print(visible(f"{name}: {share}, {speed / 1e6:.1f} MB/s{left}"), file=sys.stderr, flush=True)
