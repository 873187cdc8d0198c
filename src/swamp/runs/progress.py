"""The interface through which a run reports its progress."""

from __future__ import annotations

from swamp.engines.engine import Progress
from swamp.store.records import RowRecord


class Listener:
    """Receives the progress of a run. This class ignores everything; a subclass overrides the methods that it needs."""

    def planned(self, num_epochs: int) -> None:
        """The run will train so many epochs, those that are stored already included."""

    def epoch(self, progress: Progress) -> None:
        """An epoch has ended, or a stored training was found."""

    def row(self, result: RowRecord) -> None:
        """A row is finished and on disk."""

    def say(self, text: str) -> None:
        """There is something that the user should know."""
