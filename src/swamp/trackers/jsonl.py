"""Lines of JSON, one as each epoch or row is done: for `tail -f`, and for programs of one's own."""

from __future__ import annotations

import json
import time

from swamp.trackers.lines import Lines
from swamp.trackers.tracker import Point, TrackedRun

name = "jsonl"
needs = ""


class JsonLines:
    def __init__(self, run: TrackedRun) -> None:
        self.lines = Lines(run.place / "log.jsonl")
        run.say(f"tracker jsonl: {self.lines.path}")

    def log(self, point: Point) -> None:
        record = {"time": round(time.time(), 3), "what": point.group, point.axis: point.step, **point.values}
        self.lines.add(json.dumps(record, ensure_ascii=False))

    def close(self, finished: bool) -> None:
        """Every line is on its way to the disk already."""


track = JsonLines
