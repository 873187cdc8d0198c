"""Content-keyed objects: every derived value of a run as a file under its key, and optionally in a cache that several runs share.

Values are JSON and tensors are safetensors; each file holds its key and a checksum.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from swamp.core.job import Solution
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.store import files
from swamp.store.files import Damaged, write_durably
from swamp.training.train import Checkpoint

MEMORY = "optimizer/"  # prefix of the names of an optimizer's tensors; no parameter has a slash in its name


class Dropped(RuntimeError):
    """The weights were removed because the setting `keep` does not keep them."""


class ObjectStore:
    """Reads and writes values, tensors, solutions, masks and checkpoints by key."""

    def __init__(self, root: Path, cache: Path | None = None) -> None:
        self.root, self.cache = root, cache
        self.objects, self.work = root / "objects", root / "work"

    def read_value(self, key: str) -> Any | None:
        """Return a stored JSON value, or None."""
        path = self._find(f"{key}.json")
        return files.decode_json(path)["value"] if path else None

    def write_value(self, key: str, value: Any) -> None:
        self._write(f"{key}.json", encode_value(key, value))

    def read_arrays(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return stored tensors and their metadata, or None."""
        path = self._find(f"{key}.safetensors")
        if path is None:
            return None
        tensors, meta = files.decode_arrays(path)
        if meta.get("key") != key:
            raise Damaged(path, "it is another object")
        return tensors, meta

    def write_arrays(self, key: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        # The checksum covers the key, so that a file under another object's name counts as damaged.
        self._write(f"{key}.safetensors", files.encode_arrays(tensors, {**meta, "key": key}))

    def _write(self, name: str, data: bytes) -> None:
        write_durably(self.objects / name, data, self.work)
        if self.cache and os.access(self.cache, os.W_OK) and not (self.cache / "objects" / name).exists():
            write_durably(self.cache / "objects" / name, data, self.cache / "work")

    def _find(self, name: str) -> Path | None:
        """Return the path of an object in this directory. One that only the cache holds is checked and copied here first."""
        path = self.objects / name
        if path.exists():
            return path
        shared = self.cache / "objects" / name if self.cache else None
        if shared is None or not shared.exists():
            return None
        try:
            check(shared)
        except Damaged as error:
            print(f"swamp: {error}; it is computed again", file=sys.stderr)
            with contextlib.suppress(OSError):
                shared.unlink()  # The object that is computed again replaces it.
            return None
        write_durably(path, shared.read_bytes(), self.work)
        return path

    # solutions and masks

    def solution(self, key: str) -> Solution | None:
        """Return a handle to stored weights. None means that they were never stored or got lost; dropped weights do have a handle."""
        record = self.read_value(key)
        if record is None or not (record["dropped"] or self._find(f"{key}.safetensors")):
            return None
        return Solution(key, tuple(record["history"]), partial(self.load_state, key), record.get("mask"))

    def save_solution(self, key: str, state: State, history: Sequence[dict[str, Any]], mask: Mask | None = None) -> Solution:
        """Store weights and history, and `mask` where the training changed its mask."""
        record: dict[str, Any] = {"dropped": False, "history": list(history)}
        if mask is not None:
            self.save_mask(mask)
            record["mask"] = mask.digest
        memory = {f"{MEMORY}{name}": tensor for name, tensor in state.memory.items()}
        self.write_arrays(key, {**state.parameters, **state.buffers, **memory}, {"buffers": sorted(state.buffers), "kind": "state"})
        self.write_value(key, record)  # Written last, because its existence marks the solution as complete.
        return Solution(key, tuple(history), partial(self.load_state, key), record.get("mask"))

    def load_state(self, key: str) -> State:
        found = self.read_arrays(key)
        if found is None:
            raise Dropped(f"the weights {key} are not in {self.root}: they were not kept")
        tensors, meta = found
        buffers, memory = set(meta["buffers"]), {name for name in tensors if name.startswith(MEMORY)}
        return State(
            {name: t for name, t in tensors.items() if name not in buffers | memory},
            {name: t for name, t in tensors.items() if name in buffers},
            {name.removeprefix(MEMORY): tensors[name] for name in memory},
        )

    def has_arrays(self, key: str) -> bool:
        return self._find(f"{key}.safetensors") is not None

    def drop(self, key: str) -> None:
        """Remove a solution's weights and keep its record. The record is marked first, so that a kill in between loses nothing."""
        record = self.read_value(key)
        if record is not None and not record["dropped"]:
            write_durably(self.objects / f"{key}.json", encode_value(key, {**record, "dropped": True}), self.work)
        (self.objects / f"{key}.safetensors").unlink(missing_ok=True)

    def forget(self, key: str) -> None:
        """Remove a solution's weights and record, so that it is computed again."""
        for suffix in ("json", "safetensors"):
            (self.objects / f"{key}.{suffix}").unlink(missing_ok=True)

    def save_mask(self, mask: Mask) -> None:
        if self.has_arrays(mask.digest):
            return  # The key is a hash of the content, so the stored mask is equal.
        shapes = [[name, list(layer.shape)] for name, layer in mask.layers.items()]
        self.write_arrays(mask.digest, mask.packed(), {"kind": "mask", "shapes": shapes})

    def load_mask(self, digest: str) -> Mask | None:
        found = self.read_arrays(digest)
        if found is None:
            return None
        bits, meta = found
        return Mask.unpacked(bits, dict(meta["shapes"]))

    def mask_layers(self, digest: str) -> list[str] | None:
        """Return the names of a stored mask's layers, in the order of the network's parameters."""
        with contextlib.suppress(OSError, Damaged):
            return [name for name, _ in files.read_meta(self.objects / f"{digest}.safetensors")["shapes"]]
        return None

    # checkpoints

    def _checkpoint(self, key: str) -> Path:
        return self.work / f"{key}.checkpoint"

    def write_checkpoint(self, key: str, checkpoint: Checkpoint) -> None:
        meta = {name: getattr(checkpoint, name) for name in ("epoch", "num_averaged", "history", "label", "num_epochs")}
        write_durably(self._checkpoint(key), files.encode_arrays(checkpoint.tensors, meta), self.work)

    def read_checkpoint(self, key: str) -> Checkpoint | None:
        try:
            tensors, meta = files.decode_arrays(self._checkpoint(key))
        except (FileNotFoundError, Damaged):
            return None  # The training starts from its beginning.
        return Checkpoint(tensors, **meta)

    def checkpoint_metas(self) -> dict[str, dict[str, Any]]:
        """Return the metadata of the last checkpoint of each training under way, by key."""
        found = {}
        for path in self.work.glob("*.checkpoint"):
            with contextlib.suppress(FileNotFoundError, Damaged):  # The training has just ended, or will start over.
                found[path.stem] = files.read_meta(path)
        return found

    def remove_checkpoint(self, key: str) -> None:
        self._checkpoint(key).unlink(missing_ok=True)

    # damage and temporary files

    def clear_temporaries(self) -> None:
        """Remove temporary files of killed processes; in the cache only old ones, since other runs may be writing to it now."""
        for path in self.work.glob("tmp-*"):
            path.unlink(missing_ok=True)
        for path in (self.cache / "work").glob("tmp-*") if self.cache else ():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > 3600:
                    path.unlink()

    def put_aside_damaged(self) -> list[Path]:
        """Check every object, move those that fail to damaged/ so that they are computed again, and return their old paths."""
        bad = []
        for path in sorted(self.objects.glob("*")):
            try:
                check(path)
            except Damaged:
                (self.root / "damaged").mkdir(exist_ok=True)
                os.replace(path, self.root / "damaged" / path.name)
                bad.append(path)
        return bad

    def clear_work(self) -> None:
        """Remove the work directory. A kill between the manifest and this call leaves it behind."""
        shutil.rmtree(self.work, ignore_errors=True)


def encode_value(key: str, value: Any) -> bytes:
    return files.encode_json({"key": key, "value": value})


def check(path: Path) -> None:
    """Raise `Damaged` unless the object file holds what was written to it, under this name."""
    if path.suffix not in (".json", ".safetensors"):
        raise Damaged(path, "not an object of this store")
    stored = files.decode_json(path) if path.suffix == ".json" else files.decode_arrays(path)[1]
    if not isinstance(stored, dict) or stored.get("key") != path.stem:
        raise Damaged(path, "it is another object")
