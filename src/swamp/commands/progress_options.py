"""Options of commands that train: how the run is followed while it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from swamp.progress_display import ProgressLines


@Parameter(name="*")  # its fields are options like any others
@dataclass(frozen=True)
class ProgressOptions:
    tracker: Annotated[
        str | None,
        Parameter(
            help="Also log to tensorboard, wandb or jsonl, or to several with commas between. The run goes on whatever becomes of them."
        ),
    ] = None
    plain: Annotated[bool, Parameter(negative=(), help="Lines without bars or colours, as in a log, on a terminal too.")] = False
    quiet: Annotated[bool, Parameter(negative=(), help="No progress and no table, only remarks and what went wrong.")] = False

    @property
    def trackers(self) -> tuple[str, ...]:
        """Their names; a mistake in them is a ValueError."""
        from swamp.trackers import parse_trackers

        return parse_trackers(self.tracker) if self.tracker is not None else ()

    def check(self) -> None:
        """Before anything is trained or written."""
        if self.plain and self.quiet:
            raise ValueError("give either --plain or --quiet")
        _ = self.trackers

    def screen(self) -> ProgressLines:
        from swamp.progress_display import progress_display

        return progress_display(self.quiet, self.plain)


PROGRESS_OPTIONS = ProgressOptions()  # as it is by default
