"""Logs a line of JSON for each epoch and row, for `tail -f` and for programs of your own."""

from __future__ import annotations

import json
import time

from swamp.trackers.tracker import Lines, Point, TrackedRun

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
        """Nothing is left to do: each line was written at once."""


track = JsonLines
