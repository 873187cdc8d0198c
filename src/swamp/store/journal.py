"""The journal of a run, timing.jsonl: how long things took, and how its processes began and ended.

A line is {"what": …, "at": seconds since 1970, …}. Lines are only ever appended, by any process, and may be cut off by a kill.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from swamp.store import files

# what a line can be beside a training or a row
BEGUN = "begun again"  # after a failure, which is then none any more
PLAN = "plan"  # a process begins here, and the run takes so many epochs in all
FAILED = "failed"  # an error ends it


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path

    def log(self, record: dict[str, Any]) -> None:
        line = json.dumps({**record, "at": round(time.time(), 3)}, sort_keys=True) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, line.encode())  # one write: lines of several workers do not mix
        finally:
            os.close(descriptor)

    def records(self) -> list[dict[str, Any]]:
        """What was logged, as far as it is whole lines."""
        return list(files.json_lines(self.path, {"what": str}))

    def failure(self) -> str | None:
        """What ended the last process that worked on the run, if it was an error."""
        ends = [record for record in self.records() if record["what"] in (BEGUN, PLAN, FAILED)]
        return str(ends[-1].get("why")) if ends and ends[-1]["what"] == FAILED else None
