"""The journal of a run, timing.jsonl: how long each training and row took, and how the run's processes started and ended.

A line is {"what": …, "at": seconds since 1970, …}. Any process may append lines, none changes them, and a kill may cut off the last one.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from swamp.store import files

# Values of "what" other than a training or a row.
BEGUN = "begun again"  # The run restarts, so an earlier failure no longer counts.
PLAN = "plan"  # A process starts; the record says how many epochs the whole run takes.
FAILED = "failed"  # An error ended the process.


class Journal:
    """Appends records to a run's timing.jsonl and reads them back."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def log(self, record: dict[str, Any]) -> None:
        line = json.dumps({**record, "at": round(time.time(), 3)}, sort_keys=True) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, line.encode())  # A single write keeps lines of several workers apart.
        finally:
            os.close(descriptor)

    def records(self) -> list[dict[str, Any]]:
        """Return all complete records."""
        return list(files.json_lines(self.path, {"what": str}))

    def failure(self) -> str | None:
        """Return the error that ended the last process of the run, or None."""
        ends = [record for record in self.records() if record["what"] in (BEGUN, PLAN, FAILED)]
        return str(ends[-1].get("why")) if ends and ends[-1]["what"] == FAILED else None
