"""Weights & Biases. Without a key, or with its server away, the run is logged to its directory, to be uploaded later."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

from swamp.core.errors import reason_of
from swamp.trackers.tracker import Point, TrackedRun

name = "wandb"
needs = "wandb"

PROJECT = "swamp"  # unless the environment's WANDB_PROJECT names another
CONNECT_SECONDS = 20.0
UPLOAD_SECONDS = 60.0  # at the end; what is left is on disk


class WeightsAndBiases:
    def __init__(self, run: TrackedRun) -> None:
        self.axes: dict[str, str] = {}
        self.run, why = self._start(run)
        if self.run.offline:
            run.say(f"tracker wandb: {why or 'offline'}; logging to disk, upload it with: wandb sync {Path(self.run.dir).parent}")
        else:
            run.say(f"tracker wandb: {self.run.url}")

    def _start(self, run: TrackedRun) -> tuple[Any, str]:
        """The run there, and why it is an offline one if nobody asked for that."""
        import wandb

        wandb.setup(settings=wandb.Settings(silent=True))
        arguments: dict[str, Any] = {
            "project": os.environ.get("WANDB_PROJECT", PROJECT),
            "id": identity(run.place),
            "resume": "allow",
            "name": run.config.title,
            "group": f"{run.config.recipe}-{run.config.method}",
            "config": run.settings,
            "dir": str(run.place.parent),  # in which it makes a folder of its own name, the same
            "reinit": "create_new",  # several runs may go on side by side
            # the console belongs to the run
            "settings": wandb.Settings(silent=True, console="off", init_timeout=CONNECT_SECONDS, finish_timeout=UPLOAD_SECONDS),
        }
        if os.environ.get("WANDB_MODE"):
            return wandb.init(**arguments), ""
        try:
            if wandb.login(prompt=False):
                return wandb.init(**arguments), ""
            why = "no API key (wandb login)"
        except wandb.Error as error:
            why = reason_of(error)
        return wandb.init(**arguments, mode="offline"), why

    def log(self, point: Point) -> None:
        for tag in point.tags:
            if self.axes.setdefault(tag, "") != point.axis:
                self.axes[tag] = point.axis
                self.run.define_metric(tag, step_metric=point.axis)
        self.run.log({point.axis: point.step, **point.tags})

    def close(self, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)


def identity(place: Path) -> str:
    """A name for ever: a resumed run goes on where it was."""
    file = place / "id"
    if not file.exists():
        file.write_text(uuid.uuid4().hex[:12])
    return file.read_text()


track = WeightsAndBiases
