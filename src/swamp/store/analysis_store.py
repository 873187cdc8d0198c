"""The folder in a run directory in which analyses store their results.

DIR/analysis/NAME.json, NAME.npz     results; NAME.png and NAME.svg are their pictures
DIR/analysis/objects/KEY.*           every point, probe and training that they computed, so that a killed analysis can be resumed
DIR/analysis/work/                   temporary files; removed when the analysis ends
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from swamp.store import formats
from swamp.store.directory import Store
from swamp.store.files import Damaged, Folder
from swamp.store.formats import NamedArrays

Schema = TypeVar("Schema", bound=Struct)
CHECKSUM, ARRAYS = "checksum", "arrays"  # entries of a result's JSON: of all the rest and the run; the sha256 of its npz file
OURS = {"analysis", CHECKSUM, ARRAYS}  # entries that are no fields of a result


class AnalysisStore(Store):
    """Reads the objects of the run, and writes only to the folder of its analyses: the run's own files never change."""

    def __init__(self, run: Path) -> None:
        super().__init__(run)
        self.run = run
        self.folder = Folder(run, "analysis")
        self.journal.folder = self.folder

    def _find(self, name: str) -> Folder | None:
        theirs = Folder(self.run, "objects")
        return super()._find(name) or (theirs if theirs.has(name) else None)

    def results(self) -> list[str]:
        """Return the names of the results that are stored."""
        return [name.removesuffix(".json") for name in self.folder.names() if name.endswith(".json")]

    def write_result(self, name: str, result: Struct, arrays: Mapping[str, Any] | None = None) -> None:
        """Write the arrays first, so that a result whose JSON is there is complete."""
        value = {"analysis": name, **msgspec.to_builtins(result)}
        if arrays:
            data = formats.encode_npz(arrays)
            value[ARRAYS] = hashlib.sha256(data).hexdigest()
            self.write_bytes(f"{name}.npz", data)
        value[CHECKSUM] = self._checksum(value)
        self.write_text(f"{name}.json", json.dumps(value, indent=1) + "\n")

    def read_result(self, name: str, schema: type[Schema]) -> Schema | None:
        """Return a stored result, or None where there is none. Raise `Damaged` where the file does not hold one of this run."""
        path, value = self.root / f"{name}.json", self._read(name)
        if value is None:
            return None
        # Results of early versions have no checksum. Unknown entries are refused, so that no file passes for one by a renamed entry.
        fields = {field.encode_name for field in msgspec.structs.fields(schema)}
        if unknown := sorted(value.keys() - fields - OURS):
            raise Damaged(path, f"it has an unknown entry {unknown[0]!r}")
        try:
            return msgspec.convert(value, schema)
        except (ValueError, RecursionError) as error:
            raise Damaged(path, str(error)) from None

    def read_result_arrays(self, name: str) -> NamedArrays:
        """Return the arrays of a result. Raise `Damaged` where they are not there, or not those of the result."""
        path, value = self.root / f"{name}.npz", self._read(name) or {}
        try:
            data = self.folder.read(f"{name}.npz", formats.ARRAYS_LIMIT)
        except FileNotFoundError:
            raise Damaged(path, "it is missing") from None
        if CHECKSUM in value and hashlib.sha256(data).hexdigest() != value.get(ARRAYS):
            raise Damaged(path, f"it does not belong to {name}.json")
        return formats.decode_npz(data, path)

    def _read(self, name: str) -> dict[str, Any] | None:
        """Return the content of the JSON file of a result, or None. A wrong checksum is `Damaged`."""
        path = self.root / f"{name}.json"
        try:
            value = json.loads(self.folder.read_text(path.name))
            if not isinstance(value, dict):
                raise ValueError("it is no table")
            good = CHECKSUM not in value or value[CHECKSUM] == self._checksum(value)
        except FileNotFoundError:
            return None
        except Damaged:
            raise
        except (ValueError, TypeError, RecursionError) as error:
            raise Damaged(path, f"not readable: {error}") from None
        if not good:
            raise Damaged(path, "its checksum is wrong, or it is of another run")
        return value

    def _checksum(self, value: Mapping[str, Any]) -> str:
        """Return the checksum of a result. It covers the identity of the run, so that results of two runs cannot change places."""
        rest = {name: entry for name, entry in value.items() if name != CHECKSUM}
        return formats.checksum_of({"result": rest, "run": Store(self.run).identity()})

    def write_bytes(self, name: str, data: bytes) -> None:
        self.folder.write(name, data, self.folder / "work")
