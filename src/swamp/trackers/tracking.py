"""A listener that gives each point of a run to trackers once. A tracker that fails does not disturb the run.

Each tracker has a folder, DIR/tracking/NAME, with a file `logged` that has a line for every point it was given. So a resumed run is logged
from where its log ends, even in the middle of a training, and a tracker that is added later gets all that the run has found before. A kill
between a point and its line gives the tracker that one point twice, at the same step and with the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from swamp.engines.engine import Progress
from swamp.runs.progress import Listener, Listeners
from swamp.runs.stored import read_config
from swamp.store.directory import Store
from swamp.store.files import Damaged
from swamp.store.records import RowRecord
from swamp.trackers import trackers
from swamp.trackers.tracker import Lines, Point, TrackedRun, Tracker, epoch_point, row_points


class GuardedTracker:
    """Gives a tracker each point once. If the tracker fails, the user is informed once, and it is only closed from then on."""

    def __init__(self, name: str, store: Store, say: Callable[[str], None]) -> None:
        self.name, self.store, self.say = name, store, say
        self.tracker: Tracker | None = None
        self.failed = False
        self.logged: set[str] = set()

    def open(self) -> None:
        folder = self.store.folder / "tracking" / self.name
        place = folder.path
        with self.guarded():
            folder.make()
            self.ledger = Lines(place / "logged")
            self.logged = set(self.ledger.before)
            self.tracker = trackers()[self.name].track(TrackedRun(read_config(self.store.root), place, self.say))

    def logged_before(self) -> set[str]:
        """Return the marks of what was logged by earlier processes; nothing where that cannot be read."""
        with suppress(OSError, Damaged):
            return set(self.store.folder.read_text(f"tracking/{self.name}/logged").decode(errors="replace").splitlines())
        return set()

    def log(self, points: Iterable[Point]) -> None:
        for point in points:
            if self.tracker is None or self.failed or point.mark in self.logged:
                continue
            with self.guarded():
                self.tracker.log(point)
                self.ledger.add(point.mark)
                self.logged.add(point.mark)

    def close(self) -> None:
        with self.guarded():
            if self.tracker is not None:
                self.tracker.close(self.store.finished())

    @contextmanager
    def guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # Other packages may raise anything.
            if not self.failed:  # It is said once.
                self.say(f"tracker {self.name} failed ({type(error).__name__}: {error}); the run goes on without it")
            self.failed = True


class Tracking(Listener):
    """Gives what it hears of a run to trackers, and tells the user what goes wrong. It writes nothing before the run has begun."""

    def __init__(self, names: Sequence[str], directory: Path, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.store = Store(directory)
        self.trackers = [GuardedTracker(name, self.store, tell) for name in names]

    def planned(self, num_epochs: int) -> None:
        for tracker in self.trackers:
            tracker.open()

    def epoch(self, progress: Progress) -> None:
        if not progress.record:
            return  # The training was stored already. Its epochs come with the row that it belongs to.
        point = epoch_point(progress.label, progress.record)
        before = point._replace(step=point.step - 1).mark
        for tracker in self.trackers:
            # A tracker that lacks the epochs before this one gets all of them, in order, with the row.
            if progress.epoch == 1 or before in tracker.logged:
                tracker.log([point])

    def row(self, result: RowRecord) -> None:
        epochs: list[Point] = []
        try:
            lines = self.store.folder.read_text("metrics.jsonl").splitlines()
            epochs = [epoch_point(record["training"], record) for record in map(json.loads, lines)]
        except (OSError, ValueError, KeyError, TypeError) as error:  # This is no reason to stop a run.
            self.tell(f"trackers miss epochs: metrics.jsonl cannot be read ({type(error).__name__}: {error})")
        for tracker in self.trackers:
            tracker.log(epochs)
            tracker.log(row_points(result))

    def complete(self, rows: Sequence[RowRecord]) -> None:
        """Log a run that was finished before, if a tracker lacks its last row."""
        last = {point.mark for row in rows[-1:] for point in row_points(row)}
        for tracker in self.trackers:
            if not last <= tracker.logged_before():
                tracker.open()
        if any(tracker.tracker for tracker in self.trackers):
            for row in rows:
                self.row(row)


def trackers_before(store: Store) -> set[str]:
    """Return the names of the trackers that have logged something of a run. They are no setting of it, so that only their files tell."""
    with suppress(OSError, Damaged):  # Whatever else stands there was no tracker's.
        return {name for name in (store.folder / "tracking").names() if store.folder.has(f"tracking/{name}/logged")}
    return set()


@contextmanager
def tracked(names: Sequence[str], directory: Path, listener: Listener) -> Iterator[Listener]:
    """Return a listener that passes on what it hears to the one given and to the trackers of these names."""
    tracking = Tracking(names, directory, listener.say)
    if not tracking.store.finished() and (left_out := trackers_before(tracking.store) - set(names)):
        asked = ",".join(sorted(left_out))
        listener.say(f"{directory} was logged by {asked} before and is not now; --tracker {asked} (in Python trackers=) goes on with it")
    try:
        yield Listeners(listener, tracking) if names else listener
    finally:
        for tracker in tracking.trackers:
            tracker.close()
