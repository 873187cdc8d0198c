"""Options of commands that train: how their progress is shown and logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from swamp.progress_display import ProgressLines


@Parameter(name="*")  # Its fields are options like any others.
@dataclass(frozen=True)
class ProgressOptions:
    """How the progress of a command is shown and logged."""

    tracker: Annotated[
        str | None,
        Parameter(
            help="Also log to tensorboard, wandb or jsonl; several names are separated by commas. If a tracker fails, the run continues."
        ),
    ] = None
    plain: Annotated[bool, Parameter(negative=(), help="Print lines without bars or colours, as in a log, also on a terminal.")] = False
    quiet: Annotated[bool, Parameter(negative=(), help="Print no progress and no tables, only remarks and errors.")] = False

    @property
    def trackers(self) -> tuple[str, ...]:
        """The names of the trackers; an unknown name is a ValueError."""
        from swamp.trackers import parse_trackers

        return parse_trackers(self.tracker) if self.tracker is not None else ()

    def check(self) -> None:
        """Refuse options that contradict each other, before anything is trained or written."""
        if self.plain and self.quiet:
            raise ValueError("give either --plain or --quiet")
        _ = self.trackers

    def screen(self) -> ProgressLines:
        """Return the display that these options ask for."""
        from swamp.progress_display import progress_display

        return progress_display(self.quiet, self.plain)


PROGRESS_OPTIONS = ProgressOptions()  # the defaults
