"""The store: every path and format of a run directory.

DIR/run.json            format version, configuration and its hash, versions
DIR/config.toml         the configuration again, to read
DIR/results.json        one record a row
DIR/metrics.jsonl       one line an epoch of each training
DIR/timing.jsonl        how long things took; with run.json and config.toml all that may differ between equal runs
DIR/manifest.json       checksums of all results; there when the run is finished
DIR/cycle-03/           mask, average and particles of a row: links into objects
DIR/objects/KEY.*       every derived value under its content key; each file checks itself
DIR/tracking/NAME/      what the tracker of that name logged; no result, in no manifest
DIR/work/               checkpoints and temporaries; gone when the run ends
DIR/damaged/            files that failed their check, put aside
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from swamp.core.job import Solution
from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.store import files
from swamp.store.files import Damaged, write_durably
from swamp.store.journal import Journal
from swamp.training.train import Checkpoint

FORMAT_VERSION = 1
MEMORY = "optimizer/"  # before the names of an optimizer's memory; no parameter has a slash in its name


class Locked(ValueError):
    """Another process works on the directory."""


class Dropped(RuntimeError):
    """Weights that `keep` did not keep."""


class Store:
    """Content-keyed objects in a run directory, and optionally in a cache that runs share."""

    def __init__(self, root: Path, cache: Path | None = None) -> None:
        self.root, self.cache = root, cache
        self.objects, self.work, self.tracking = root / "objects", root / "work", root / "tracking"
        self.journal = Journal(root / "timing.jsonl")

    # -- objects ------------------------------------------------------------------------------------------------------------------

    def read_value(self, key: str) -> Any | None:
        """A stored JSON value, or None."""
        path = self._find(f"{key}.json")
        return files.decode_json(path)["value"] if path else None

    def write_value(self, key: str, value: Any) -> None:
        self._write(f"{key}.json", encode_value(key, value))

    def read_arrays(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        path = self._find(f"{key}.safetensors")
        if path is None:
            return None
        tensors, meta = files.decode_arrays(path)
        if meta.get("key") != key:
            raise Damaged(path, "it is another object")
        return tensors, meta

    def write_arrays(self, key: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        # the key is part of what is checked: a file in another's place is a damaged file
        self._write(f"{key}.safetensors", files.encode_arrays(tensors, {**meta, "key": key}))

    def _write(self, name: str, data: bytes) -> None:
        write_durably(self.objects / name, data, self.work)
        if self.cache and os.access(self.cache, os.W_OK) and not (self.cache / "objects" / name).exists():
            write_durably(self.cache / "objects" / name, data, self.cache / "work")

    def _find(self, name: str) -> Path | None:
        """The object's path here; what only the cache has is checked and brought here first."""
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
                shared.unlink()  # and takes its place
            return None
        write_durably(path, shared.read_bytes(), self.work)
        return path

    # -- solutions and masks ------------------------------------------------------------------------------------------------------

    def solution(self, key: str) -> Solution | None:
        """A handle to stored weights, or None if there are none (or they were lost; what was dropped on purpose is not lost)."""
        record = self.read_value(key)
        if record is None or not (record["dropped"] or self._find(f"{key}.safetensors")):
            return None
        return Solution(key, tuple(record["history"]), partial(self.load_state, key), record.get("mask"))

    def save_solution(self, key: str, state: State, history: Sequence[dict[str, Any]], mask: Mask | None = None) -> Solution:
        """`mask`: the one that came with the weights, where the training found it."""
        record: dict[str, Any] = {"dropped": False, "history": list(history)}
        if mask is not None:
            self.save_mask(mask)
            record["mask"] = mask.digest
        memory = {f"{MEMORY}{name}": tensor for name, tensor in state.memory.items()}
        self.write_arrays(key, {**state.parameters, **state.buffers, **memory}, {"buffers": sorted(state.buffers), "kind": "state"})
        self.write_value(key, record)  # last: it says that the solution is complete
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
        """Remove a solution's weights but not its record. The record says so first, so that a kill in between loses nothing."""
        record = self.read_value(key)
        if record is not None and not record["dropped"]:
            write_durably(self.objects / f"{key}.json", encode_value(key, {**record, "dropped": True}), self.work)
        (self.objects / f"{key}.safetensors").unlink(missing_ok=True)

    def forget(self, key: str) -> None:
        """Remove a solution altogether, so that it is made again."""
        for suffix in ("json", "safetensors"):
            (self.objects / f"{key}.{suffix}").unlink(missing_ok=True)

    def save_mask(self, mask: Mask) -> None:
        if self.has_arrays(mask.digest):
            return  # a mask is stored under its own content
        shapes = [[name, list(layer.shape)] for name, layer in mask.layers.items()]
        self.write_arrays(mask.digest, mask.packed(), {"kind": "mask", "shapes": shapes})

    def load_mask(self, digest: str) -> Mask | None:
        found = self.read_arrays(digest)
        if found is None:
            return None
        bits, meta = found
        return Mask.unpacked(bits, dict(meta["shapes"]))

    def mask_layers(self, digest: str) -> list[str] | None:
        """The names of a stored mask's layers, in the order of the network's parameters."""
        with contextlib.suppress(OSError, Damaged):
            return [name for name, _ in files.read_meta(self.objects / f"{digest}.safetensors")["shapes"]]
        return None

    # -- checkpoints --------------------------------------------------------------------------------------------------------------

    def _checkpoint(self, key: str) -> Path:
        return self.work / f"{key}.checkpoint"

    def write_checkpoint(self, key: str, checkpoint: Checkpoint) -> None:
        meta = {name: getattr(checkpoint, name) for name in ("epoch", "num_averaged", "history", "label", "num_epochs")}
        write_durably(self._checkpoint(key), files.encode_arrays(checkpoint.tensors, meta), self.work)

    def read_checkpoint(self, key: str) -> Checkpoint | None:
        try:
            tensors, meta = files.decode_arrays(self._checkpoint(key))
        except (FileNotFoundError, Damaged):
            return None  # the training starts over
        return Checkpoint(tensors, **meta)

    def checkpoint_metas(self) -> dict[str, dict[str, Any]]:
        """What the trainings that are under way noted at their last checkpoint, by key."""
        found = {}
        for path in self.work.glob("[!t]*.checkpoint"):  # but no temporaries: keys are hexadecimal
            with contextlib.suppress(FileNotFoundError, Damaged):  # that training has ended just now, or starts over
                found[path.stem] = files.read_meta(path)
        return found

    def remove_checkpoint(self, key: str) -> None:
        self._checkpoint(key).unlink(missing_ok=True)

    # -- the readable part --------------------------------------------------------------------------------------------------------

    def link_row(self, cycle: int, objects: Mapping[str, str]) -> None:
        """cycle-03/NAME.safetensors → objects/KEY.safetensors, for what is kept; links to what is not kept go."""
        directory = self.root / f"cycle-{cycle:02d}"
        directory.mkdir(exist_ok=True)
        for name, key in objects.items():
            link, target = directory / f"{name}.safetensors", f"../objects/{key}.safetensors"
            kept = (self.objects / f"{key}.safetensors").exists()
            if kept and link.is_symlink() and os.readlink(link) == target:
                continue
            link.unlink(missing_ok=True)
            if kept:
                link.symlink_to(target)

    def write_text(self, name: str, text: str) -> None:
        path, data = self.root / name, text.encode()
        if not (path.exists() and path.read_bytes() == data):
            write_durably(path, data, self.work)

    def log_timing(self, record: dict[str, Any]) -> None:
        self.journal.log(record)

    def last_moved(self) -> float:
        """When something was last written, by the clock of the file system."""
        places = [self.root / "run.json", self.journal.path, self.root / "results.json", self.objects, self.work]
        times = []
        for place in places:
            with contextlib.suppress(FileNotFoundError):
                times.append(place.stat().st_mtime)
        return max(times, default=0.0)

    # -- the whole directory ------------------------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any] | None:
        """What run.json says, in today's format; None where there is no run yet."""
        path = self.root / "run.json"
        if not path.exists():
            return None
        header: dict[str, Any] = files.decode_json(path)
        if header["format_version"] > FORMAT_VERSION:
            raise ValueError(
                f"{self.root} was written by a newer swamp (format {header['format_version']}, this one reads up to {FORMAT_VERSION}); "
                "upgrade swamp to use it"
            )
        while header["format_version"] < FORMAT_VERSION:
            if header["format_version"] not in MIGRATIONS:
                raise ValueError(f"{self.root} has format {header['format_version']}, which this swamp does not read")
            header = MIGRATIONS[header["format_version"]](header)
        return header

    def write_header(self, header: Mapping[str, Any]) -> None:
        data = files.encode_json({**header, "format_version": FORMAT_VERSION})
        path = self.root / "run.json"
        if not (path.exists() and path.read_bytes() == data):
            write_durably(path, data, self.work)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out while inside. The lock dies with this process and is inherited by none."""
        self.root.mkdir(parents=True, exist_ok=True)
        with open(self.root / ".lock", "a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Locked(f"{self.root} is in use by another process; wait for it to end or stop it") from None
            yield

    def clear_temporaries(self) -> None:
        """Remove what killed processes left. Other runs may be writing to the cache now, so only old leavings go there."""
        for path in self.work.glob("tmp-*"):
            path.unlink(missing_ok=True)
        for path in (self.cache / "work").glob("tmp-*") if self.cache else ():
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > 3600:
                    path.unlink()

    def put_aside_damaged(self) -> list[Path]:
        """Check every object; move those that fail out of the way, to be computed again. Their paths."""
        bad = []
        for path in sorted(self.objects.glob("*")):
            try:
                check(path)
            except Damaged:
                (self.root / "damaged").mkdir(exist_ok=True)
                os.replace(path, self.root / "damaged" / path.name)
                bad.append(path)
        return bad

    def finish(self) -> None:
        """Remove the work room and write the manifest."""
        listed = {str(p.relative_to(self.root)): files.sha256(p) for p in self._results()}
        write_durably(self.root / "manifest.json", files.encode_json(listed), self.work)
        self.clear_work()

    def _results(self) -> list[Path]:
        linked = sorted(self.root.glob("cycle-*/*"))
        return [*sorted(self.objects.glob("*")), *linked, self.root / "results.json", self.root / "metrics.jsonl"]

    def clear_work(self) -> None:
        """What a kill between the manifest and the very end leaves."""
        shutil.rmtree(self.work, ignore_errors=True)

    def finished(self) -> bool:
        return (self.root / "manifest.json").exists()

    def altered(self) -> str:
        """What became of the files of a finished run, in words; nothing if they are as the manifest says."""
        try:
            listed: dict[str, str] = files.decode_json(self.root / "manifest.json")
        except Damaged:
            return "manifest.json was damaged"
        gone = [name for name in listed if not (self.root / name).exists()]
        changed = [name for name, checksum in listed.items() if name not in gone and not _matches(self.root / name, checksum)]
        return " and ".join(
            f"{what} ({_some(names)})"
            for what, names in (
                (f"{len(gone)} of {len(listed)} files went missing", gone),
                (f"{len(changed)} changed", changed),
            )
            if names
        )


MIGRATIONS: dict[int, Any] = {}  # format version -> function from a header of it to one of the next


def encode_value(key: str, value: Any) -> bytes:
    return files.encode_json({"key": key, "value": value})


def check(path: Path) -> None:
    """Raise `Damaged` unless the object file holds what was written to it, under this name."""
    if path.suffix not in (".json", ".safetensors"):
        raise Damaged(path, "not an object of this store")
    stored = files.decode_json(path) if path.suffix == ".json" else files.decode_arrays(path)[1]
    if not isinstance(stored, dict) or stored.get("key") != path.stem:
        raise Damaged(path, "it is another object")


def _some(names: Sequence[str]) -> str:
    """
    >>> _some("abcdef")
    'a, b, c, d, …'
    """
    return ", ".join([*names[:4], *(["…"] if len(names) > 4 else [])])


def _matches(path: Path, checksum: str) -> bool:
    try:
        return files.sha256(path) == checksum
    except OSError:
        return False


def open_cache(cache: Path, device: str) -> Path:
    """The part of a shared cache that holds results of this torch and this kind of device: others differ in their last bits."""
    if (cache / "run.json").exists():
        raise ValueError(f"--cache {cache} is a run directory; a cache is a directory of its own")
    part = cache / f"torch-{torch.__version__}-{device.split(':')[0]}"
    try:
        files.make_directory(part / "objects")
    except OSError as error:
        raise ValueError(f"--cache {cache} cannot be used: {error.strerror}") from None
    return part


def runs_in(directory: Path) -> list[Path]:
    """The runs a directory stands for: itself, or (a group of seeds) those right below it."""
    if (directory / "run.json").exists():
        return [directory]
    below = sorted((path.parent for path in directory.glob("*/run.json")), key=lambda path: (len(path.name), path.name))
    if not below:
        what = "does not exist" if not directory.exists() else "holds no run (no run.json in it or right below it)"
        raise ValueError(f"{directory} {what}")
    return below
