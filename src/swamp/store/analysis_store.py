"""The folder in a run directory in which analyses store their results.

DIR/analysis/NAME.json, NAME.npz     results; NAME.png and NAME.svg are their pictures
DIR/analysis/objects/KEY.*           every point, probe and training that they computed, so that a killed analysis can be resumed
DIR/analysis/work/                   temporary files; removed when the analysis ends
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from swamp.store.directory import Store
from swamp.store.files import Damaged, write_durably

Schema = TypeVar("Schema", bound=Struct)


class AnalysisStore(Store):
    """Reads the objects of the run, and writes only to the folder of its analyses: the run's own files never change."""

    def __init__(self, run: Path) -> None:
        super().__init__(run / "analysis")
        self.run = run

    def _find(self, name: str) -> Path | None:
        theirs = self.run / "objects" / name
        return super()._find(name) or (theirs if theirs.exists() else None)

    def write_result(self, name: str, result: Struct, arrays: Mapping[str, Any] | None = None) -> None:
        """Write the arrays first, so that a result whose JSON is there is complete."""
        if arrays:
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **{key: np.asarray(value) for key, value in arrays.items()})
            self.write_bytes(f"{name}.npz", buffer.getvalue())
        self.write_text(f"{name}.json", json.dumps({"analysis": name, **msgspec.to_builtins(result)}, indent=1) + "\n")

    def read_result(self, name: str, schema: type[Schema]) -> Schema | None:
        """Return a stored result, or None where there is none. Raise `Damaged` where the file does not hold one."""
        path = self.root / f"{name}.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=schema)
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise Damaged(path, str(error)) from None

    def read_result_arrays(self, name: str) -> dict[str, Any]:
        """Return the arrays of a result. Raise `Damaged` where they are not there, or not arrays."""
        path = self.root / f"{name}.npz"
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
        except FileNotFoundError:
            raise Damaged(path, "it is missing") from None
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise Damaged(path, str(error)) from None

    def write_bytes(self, name: str, data: bytes) -> None:
        write_durably(self.root / name, data, self.work)
