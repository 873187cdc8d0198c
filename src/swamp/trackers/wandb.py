"""Logs to Weights & Biases. Without a key or a connection the run is logged to its directory, to be uploaded later."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import msgspec

from swamp.core.errors import reason_of
from swamp.store.files import Folder
from swamp.trackers.tracker import Point, TrackedRun

name = "wandb"
needs = "wandb"

PROJECT = "swamp"  # The environment's WANDB_PROJECT takes precedence.
CONNECT_SECONDS = 20.0
UPLOAD_SECONDS = 60.0  # at the end; the rest stays on disk


class WeightsAndBiases:
    def __init__(self, run: TrackedRun) -> None:
        self.axes: dict[str, str] = {}
        self.run, why = self._start(run)
        if self.run.offline:
            run.say(f"tracker wandb: {why or 'offline'}; logging to disk, upload it with: wandb sync {Path(self.run.dir).parent}")
        else:
            run.say(f"tracker wandb: {self.run.url}")

    def _start(self, run: TrackedRun) -> tuple[Any, str]:
        """Start the run, and return it with the reason if it is offline though nobody asked for that."""
        import wandb

        wandb.setup(settings=wandb.Settings(silent=True))
        arguments: dict[str, Any] = {
            "project": os.environ.get("WANDB_PROJECT", PROJECT),
            "id": identity(run.place),
            "resume": "allow",
            "name": run.config.title,
            "group": f"{run.config.recipe}-{run.config.method}",
            "config": msgspec.to_builtins(run.config),
            "dir": str(run.place.parent),  # wandb makes a folder named wandb in it, which is this tracker's
            "reinit": "create_new",  # Several runs may be active at once.
            # The console is left to the run.
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
    """Return the id of this run, which is made once, so that a resumed run continues the same one."""
    folder = Folder(place)
    if not folder.has("id"):
        folder.write("id", uuid.uuid4().hex[:12].encode(), folder)
    return folder.read_text("id").decode()


track = WeightsAndBiases
