"""Who is told how a run goes."""

from __future__ import annotations

from swamp.engines.engine import Progress
from swamp.store.records import RowRecord


class Listener:
    """Is told how a run goes. This class ignores everything; a subclass overrides what it wants to know."""

    def planned(self, num_epochs: int) -> None:
        """The run will train so many epochs, those that are stored already included."""

    def epoch(self, progress: Progress) -> None:
        """An epoch has ended, or a stored training was found."""

    def row(self, result: RowRecord) -> None:
        """A row is finished and on disk."""

    def say(self, text: str) -> None:
        """There is something that the user should know."""
