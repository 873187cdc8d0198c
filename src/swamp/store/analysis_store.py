"""An analysis_store: the room beside a run in which analyses keep what they find.

DIR/analysis/NAME.json, NAME.npz     results; NAME.png and NAME.svg are their pictures
DIR/analysis/objects/KEY.*           every point, probe and training that they took, so that a killed analysis goes on
DIR/analysis/work/                   temporaries; gone when the analysis ends
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from swamp.store.directory import Store
from swamp.store.files import write_durably


class AnalysisStore(Store):
    """A store that finds what the run has, and writes beside it: nothing of the run's own is ever touched."""

    def __init__(self, run: Path) -> None:
        super().__init__(run / "analysis")
        self.run = run

    def _find(self, name: str) -> Path | None:
        theirs = self.run / "objects" / name
        return super()._find(name) or (theirs if theirs.exists() else None)

    def write_result(self, name: str, result: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> None:
        """The arrays first: a result whose JSON is there is complete."""
        if arrays:
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **{key: np.asarray(value) for key, value in arrays.items()})
            self.write_bytes(f"{name}.npz", buffer.getvalue())
        self.write_text(f"{name}.json", json.dumps(result, indent=1) + "\n")

    def has_result(self, name: str) -> bool:
        return (self.root / f"{name}.json").exists()

    def read_result(self, name: str) -> dict[str, Any] | None:
        if not self.has_result(name):
            return None
        found: dict[str, Any] = json.loads((self.root / f"{name}.json").read_text())
        return found

    def write_bytes(self, name: str, data: bytes) -> None:
        write_durably(self.root / name, data, self.work)
