"""Content-keyed objects: every derived value of a run as a file under its key, and optionally in a cache that several runs share.

Values are JSON and tensors are safetensors; each file holds its key and a checksum.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
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
from swamp.store import formats
from swamp.store.files import Damaged, Folder
from swamp.training.train import Checkpoint

LINK = re.compile(r"\.\./(objects/[\w-]+\.safetensors)")  # the target of a link cycle-NN/NAME.safetensors
MEMORY = "optimizer/"  # prefix of the names of an optimizer's tensors; no parameter has a slash in its name


class Dropped(RuntimeError):
    """The weights were removed because the setting `keep` does not keep them."""


class ObjectStore:
    """Reads and writes values, tensors, solutions, masks and checkpoints by key."""

    def __init__(self, root: Path, cache: Path | None = None, *, adds: bool = True) -> None:
        self.folder, self.cache = Folder(root), cache
        self.adds = adds  # whether what is made here belongs into the cache
        self._forgotten: set[str] = set()  # keys that are made again, whatever the cache knows of them

    @property
    def root(self) -> Path:
        return self.folder.path

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    @property
    def work(self) -> Path:
        return self.root / "work"

    def read_value(self, key: str) -> Any | None:
        """Return a stored JSON value, or None."""
        found = self._find(f"{key}.json")
        return check_value(found.read_text(f"{key}.json"), found.path / f"{key}.json") if found else None

    def write_value(self, key: str, value: Any) -> None:
        self._write(f"{key}.json", encode_value(key, value))

    def read_arrays(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return stored tensors and their metadata, or None."""
        found = self._find(f"{key}.safetensors")
        return check_arrays(found.read(f"{key}.safetensors"), found.path / f"{key}.safetensors") if found else None

    def write_arrays(self, key: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        # The checksum covers the key, so that a file under another object's name counts as damaged.
        self._write(f"{key}.safetensors", formats.encode_arrays(tensors, {**meta, "key": key}))

    def _write(self, name: str, data: bytes) -> None:
        (self.folder / "objects").write(name, data, self.folder / "work")
        if shared := self._writable_cache():
            _put(shared, name, data)
            if name.endswith(".safetensors") and self.differs_from_cache([name]):
                print(f"swamp: another process put other weights into the cache; {self.root} shares nothing from now on", file=sys.stderr)
                self.cache = None

    def _writable_cache(self) -> Folder | None:
        """Return the cache, if this directory adds to one that can be written."""
        return Folder(self.cache) if self.cache and self.adds and os.access(self.cache, os.W_OK) else None

    def gives(self) -> bool:
        """Return whether the cache, which need not be there yet, gets what is made here."""
        return self.cache is not None and self.adds and (not self.cache.exists() or os.access(self.cache, os.W_OK))

    def weights(self) -> dict[str, str]:
        """Return the checksums that the weights and masks of this directory say that they have, by file name."""
        objects = self.folder / "objects"
        return _checksums(objects, [name for name in objects.names() if name.endswith(".safetensors")])

    def differs_from_cache(self, names: Sequence[str] | None = None) -> bool:
        """Return whether the cache has other weights than this directory under one key, since a GPU or another processor gives a training
        other last bits. Particles of this directory and of the cache would then be averaged though they come from two tickets."""
        if self.cache is None:
            return False
        ours = self.weights() if names is None else _checksums(self.folder / "objects", names)
        return disagree(ours, _checksums(Folder(self.cache, "objects"), list(ours)))

    def share(self) -> None:
        """Put the objects that this directory holds and the cache lacks into the cache, each after a check of its content. One that is
        damaged stays out. Where the file system can give a file a second name, nothing is copied."""
        shared = self._writable_cache()
        if shared is None:
            return
        ours, there = (self.folder / "objects").names(), set((shared / "objects").names())
        weights = {name for name in ours if name.endswith(".safetensors")}
        for name in ours:
            # The record of weights that the cache lacks is looked at too: the one there may say that they were dropped.
            if name not in there or f"{Path(name).stem}.safetensors" in weights - there:
                with contextlib.suppress(Damaged):
                    _put(shared, name, read_checked(self.folder / "objects", name), self.folder)

    def _find(self, name: str) -> Folder | None:
        """Return the folder that holds an object. One that only the cache holds is checked and copied to this directory first."""
        objects = self.folder / "objects"
        if objects.has(name):
            return objects
        if self.cache is None or Path(name).stem in self._forgotten:
            return None
        shared = Folder(self.cache, "objects")
        try:
            data = read_checked(shared, name)
        except FileNotFoundError:
            return None
        except Damaged as error:
            print(f"swamp: {error}; it is computed again", file=sys.stderr)
            with contextlib.suppress(OSError):
                shared.remove(name)  # The object that is computed again replaces it.
            return None
        objects.write(name, data, self.folder / "work")
        return objects

    # solutions and masks

    def solution(self, key: str) -> Solution | None:
        """Return a handle to stored weights. None means that they were never stored or got lost; dropped weights do have a handle."""
        record = self._record(key)
        if record is None or not (record["dropped"] or self._find(f"{key}.safetensors")):
            return None
        return Solution(key, tuple(record["history"]), partial(self.load_state, key), record.get("mask"))

    def _record(self, key: str) -> dict[str, Any] | None:
        """Return the record of a solution, or None."""
        record = self.read_value(key)
        if record is None or (
            isinstance(record, dict)
            and isinstance(record.get("dropped"), bool)
            and isinstance(record.get("history"), list)
            and all(isinstance(epoch, dict) for epoch in record["history"])
            and isinstance(record.get("mask", ""), str)
        ):
            return record
        raise Damaged(self.objects / f"{key}.json", "it is no record of a training")

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
        if not isinstance(meta.get("buffers"), list) or not {*map(str, meta["buffers"])} <= tensors.keys():
            raise Damaged(self.objects / f"{key}.safetensors", "it holds no weights")
        buffers, memory = set(meta["buffers"]), {name for name in tensors if name.startswith(MEMORY)}
        return State(
            {name: t for name, t in tensors.items() if name not in buffers | memory},
            {name: t for name, t in tensors.items() if name in buffers},
            {name.removeprefix(MEMORY): tensors[name] for name in memory},
        )

    def has_arrays(self, key: str) -> bool:
        """Return whether arrays can be had. Those that only the cache holds are copied to this directory."""
        return self._find(f"{key}.safetensors") is not None

    def keeps_arrays(self, key: str) -> bool:
        """Return whether this directory itself holds arrays. It may have dropped what the cache still holds."""
        return self.folder.has(f"objects/{key}.safetensors")

    def drop(self, key: str) -> None:
        """Remove a solution's weights and keep its record. The record is marked first, so that a kill in between loses nothing."""
        record = self._record(key)
        if record is not None and not record["dropped"]:
            self.folder.write(f"objects/{key}.json", encode_value(key, {**record, "dropped": True}), self.folder / "work")
        self.folder.remove(f"objects/{key}.safetensors")

    def forget(self, key: str) -> None:
        """Remove a solution's weights and record, so that it is computed again; in the cache too, from which they would come back. What
        stays in a cache that cannot be written is not looked at any more."""
        self._forgotten.add(key)
        for folder in filter(None, (self.folder, self._writable_cache())):
            for suffix in ("json", "safetensors"):
                folder.remove(f"objects/{key}.{suffix}")

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
        try:
            shapes = {name: list(shape) for name, shape in meta["shapes"]}
            if any(math.prod(shape) > 8 * bits[name].numel() for name, shape in shapes.items()):
                raise ValueError("its layers are larger than its bits")  # Unpacking would fill the rest with zeros.
            mask = Mask.unpacked(bits, shapes)
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise Damaged(self.objects / f"{digest}.safetensors", f"it holds no mask: {error}") from None
        return mask

    def mask_layers(self, digest: str) -> list[str] | None:
        """Return the names of a stored mask's layers, in the order of the network's parameters."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return [str(name) for name, _ in formats.read_meta(self.folder, f"objects/{digest}.safetensors")["shapes"]]
        return None

    # checkpoints

    def write_checkpoint(self, key: str, checkpoint: Checkpoint) -> None:
        meta = {name: getattr(checkpoint, name) for name in CHECKPOINT_FIELDS}
        data = formats.encode_arrays(checkpoint.tensors, {**meta, "key": key})
        self.folder.write(f"work/{key}.checkpoint", data, self.folder / "work")

    def read_checkpoint(self, key: str) -> Checkpoint | None:
        """Return the last checkpoint of a training. One that is damaged or of another training is named, and the training starts over."""
        name = f"work/{key}.checkpoint"
        path = self.root / name
        try:
            tensors, meta = formats.decode_arrays(self.folder.read(name), path)
            _require_key(meta, key, path)
            if not all(isinstance(meta.get(field), kind) for field, kind in CHECKPOINT_FIELDS.items()):
                raise Damaged(path, "it is no checkpoint")
            return Checkpoint(tensors, **{field: meta[field] for field in CHECKPOINT_FIELDS})
        except FileNotFoundError:
            return None
        except Damaged as error:
            print(f"swamp: {error}; the training starts over", file=sys.stderr)
            return None

    def checkpoint_metas(self) -> dict[str, dict[str, Any]]:
        """Return the metadata of the last checkpoint of each training under way, by key."""
        found = {}
        for name in (self.folder / "work").names():
            key, dot, suffix = name.rpartition(".")
            if dot and suffix == "checkpoint":
                with contextlib.suppress(FileNotFoundError, Damaged):  # The training has just ended, or will start over.
                    meta = formats.read_meta(self.folder, f"work/{name}")
                    _require_key(meta, key, self.work / name)
                    found[key] = meta
        return found

    def remove_checkpoint(self, key: str) -> None:
        self.folder.remove(f"work/{key}.checkpoint")

    # damage and temporary files

    def clear_temporaries(self) -> None:
        """Remove temporary files of killed processes; in the cache only old ones, since other runs may be writing to it now."""
        ours = self.folder / "work"
        for name in _temporaries(ours):
            ours.remove(name)
        if self.cache is None:
            return
        shared = Folder(self.cache, "work")
        for name in _temporaries(shared):
            with contextlib.suppress(OSError):
                found = shared.stat(name)
                if found and time.time() - found.st_mtime > 3600:
                    shared.remove(name)

    def put_aside_damaged(self) -> list[Path]:
        """Check every object, move those that fail to damaged/ so that they are computed again, and return their old paths."""
        objects, bad = self.folder / "objects", []
        for name in objects.names():
            try:
                read_checked(objects, name)
            except Damaged:
                objects.move(name, self.folder / "damaged")
                bad.append(objects.path / name)
        return bad

    def clear_work(self) -> None:
        """Remove the work directory. A kill between the manifest and this call leaves it behind."""
        self.folder.remove_tree("work")


def disagree(ours: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    """Return whether weights have one name and two checksums."""
    return any(theirs.get(name, checksum) != checksum for name, checksum in ours.items())


def _checksums(objects: Folder, names: Sequence[str]) -> dict[str, str]:
    """Return the checksums that these files say that they have. One that is missing or damaged has none: it is made again."""
    found = {}
    for name in names:
        with contextlib.suppress(OSError, Damaged):
            found[name] = formats.read_checksum(objects, name)
    return found


CHECKPOINT_FIELDS = {"epoch": int, "num_averaged": int, "history": list, "label": str, "num_epochs": int}


def _temporaries(work: Folder) -> list[str]:
    return [name for name in work.names() if name.startswith("tmp-")]


def _require_key(stored: Any, key: str, path: Path) -> None:
    """Raise `Damaged` if a file does not hold what its name says."""
    if not isinstance(stored, dict) or stored.get("key") != key:
        raise Damaged(path, "it is another object")


def _put(shared: Folder, name: str, data: bytes, source: Folder | None = None) -> None:
    """Put the content of an object into a cache that lacks it. `source` is the run directory that holds it, if it need not be copied.

    A record of weights takes the place of one that says they were dropped, and never the other way round.
    """
    path = f"objects/{name}"
    if source and not shared.has(path) and source.link_file(path, shared):
        return
    if not shared.has(path):
        shared.write(path, data, shared / "work")
    elif name.endswith(".json") and not _says_dropped(data, shared.path / path):
        with contextlib.suppress(FileNotFoundError, Damaged):
            if _says_dropped(shared.read_text(path), shared.path / path):
                shared.write(path, data, shared / "work")


def _says_dropped(data: bytes, path: Path) -> bool:
    """Return whether the content of an object file is the record of weights that were dropped."""
    value = check_value(data, path)
    return isinstance(value, dict) and value.get("dropped") is True


def encode_value(key: str, value: Any) -> bytes:
    return formats.encode_json({"key": key, "value": value})


def check_value(data: bytes, path: Path) -> Any:
    """Return the value in the content of an object file. Raise `Damaged` unless it is what was written there, under this name."""
    stored = formats.decode_json(data, path)
    _require_key(stored, path.stem, path)
    return stored["value"]


def check_arrays(data: bytes, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and metadata in the content of an object file, which are checked likewise."""
    tensors, meta = formats.decode_arrays(data, path)
    _require_key(meta, path.stem, path)
    return tensors, meta


def read_checked(objects: Folder, name: str) -> bytes:
    """Return the content of an object file. Raise `Damaged` unless it is an object under its own name."""
    path = objects.path / name
    if path.suffix not in (".json", ".safetensors"):
        raise Damaged(path, "not an object of this store")
    data = objects.read_text(name) if path.suffix == ".json" else objects.read(name)
    (check_value if path.suffix == ".json" else check_arrays)(data, path)
    return data
