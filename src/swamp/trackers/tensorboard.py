"""Logs to TensorBoard's event files, in the run directory."""

from __future__ import annotations

from swamp.runs.setting_list import to_toml
from swamp.trackers.tracker import Point, TrackedRun

name = "tensorboard"
needs = "tensorboard"


class TensorBoard:
    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(run.place))
        indented = "".join(f"    {line}\n" for line in to_toml(run.config).splitlines())  # a block of code in Markdown
        self.writer.add_text("config", indented)
        run.say(f"tracker tensorboard: tensorboard --logdir {run.place}")

    def log(self, point: Point) -> None:
        for tag, value in point.tags.items():
            self.writer.add_scalar(tag, value, point.step)
        self.writer.flush()

    def close(self, finished: bool) -> None:
        self.writer.close()


track = TensorBoard
