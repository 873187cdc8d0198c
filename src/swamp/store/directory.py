"""A run directory: its header, lock, journal, readable files and manifest, around the objects of `store.objects`.

DIR/run.json            format version, configuration and its hash, versions, kind of device, layers in order; .run.json is a copy of it
DIR/config.toml         the configuration again, for people to read
DIR/results.json        one record per row
DIR/metrics.jsonl       one line per epoch of each training
DIR/timing.jsonl        how long things took; only this file, run.json and config.toml may differ between equal runs
DIR/manifest.json       checksums of all results; it exists once the run is finished
DIR/cycle-03/           links into objects: the mask, the average and the particles of a row
DIR/objects/KEY.*       every derived value under its content key, with a checksum
DIR/tracking/NAME/      what the tracker of that name logged; it is no result, so the manifest does not list it
DIR/work/               checkpoints and temporary files, removed when the run ends
DIR/damaged/            objects that failed their check
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from swamp.core.mask import Mask
from swamp.store import formats
from swamp.store.files import Damaged, Folder
from swamp.store.objects import LINK, ObjectStore, read_checked

FORMAT_VERSION = 1
HEADER, COPY = "run.json", ".run.json"
HEADER_TYPES = {"format_version": int, "config": dict, "config_hash": str, "seed": int, "task": str, "versions": dict}

# Values of "what" in the journal other than a training or a row.
BEGUN = "begun again"  # The run restarts, so an earlier failure no longer counts.
PLAN = "plan"  # A process starts; the record says how many epochs the whole run takes.
FAILED = "failed"  # An error ended the process.


class Locked(ValueError):
    """Another process works on the directory."""


class Journal:
    """The journal of a run, timing.jsonl: how long each training and row took, and how the run's processes started and ended.

    A line is {"what": …, "at": seconds since 1970, …}. Any process may append lines, none changes them, and a kill may cut off the last.
    """

    name = "timing.jsonl"

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def log(self, record: dict[str, Any]) -> None:
        self.folder.append(self.name, (json.dumps({**record, "at": round(time.time(), 3)}, sort_keys=True) + "\n").encode())

    def records(self) -> list[dict[str, Any]]:
        """Return all complete records."""
        return list(formats.json_lines(self.folder, self.name, {"what": str}))

    def failure(self) -> str | None:
        """Return the error that ended the last process of the run, or None."""
        ends = [record for record in self.records() if record["what"] in (BEGUN, PLAN, FAILED)]
        return str(ends[-1].get("why")) if ends and ends[-1]["what"] == FAILED else None


class Store(ObjectStore):
    """A run directory. With a cache, objects are also shared with other runs."""

    def __init__(self, root: Path, cache: Path | None = None, *, adds: bool = True) -> None:
        super().__init__(root, cache, adds=adds)
        self.journal = Journal(self.folder)

    def link_row(self, cycle: int, mask: str, average: str, particles: Sequence[str]) -> None:
        """Link cycle-03/NAME.safetensors to objects/KEY.safetensors for each object that is kept, and remove links to the others."""
        objects = {"mask": mask, "average": average, **{f"particle-{index}": key for index, key in enumerate(particles)}}
        folder = self.folder / f"cycle-{cycle:02d}"
        folder.make()
        for name, key in objects.items():
            link, target = f"{name}.safetensors", f"../objects/{key}.safetensors"
            kept = self.folder.has(f"objects/{key}.safetensors")
            if kept and folder.link_target(link) == target:
                continue
            folder.remove(link)
            if kept:
                folder.link(link, target)

    def write_text(self, name: str, text: str) -> None:
        """Write a file of the directory, unless it holds this text already."""
        data = text.encode()
        try:
            if self.folder.read_text(name) == data:
                return
        except (FileNotFoundError, Damaged):
            pass  # Whatever stands there is replaced, not written through.
        self.folder.write(name, data, self.folder / "work")

    def log_timing(self, record: dict[str, Any]) -> None:
        self.journal.log(record)

    def last_moved(self) -> float:
        """Return the time of the last write, by the clock of the file system."""
        found = [self.folder.stat(name) for name in (HEADER, self.journal.name, "results.json", "objects", "work")]
        return max((one.st_mtime for one in found if one), default=0.0)

    def header(self) -> dict[str, Any] | None:
        """Return the content of run.json, or of its copy where run.json is missing or damaged; None where there is no run yet."""
        return self.header_and_problem()[0]

    def header_and_problem(self) -> tuple[dict[str, Any] | None, str]:
        """Return the content of run.json or of its copy, and a sentence about run.json if the copy had to be used."""
        found: dict[str, dict[str, Any]] = {}
        damages: dict[str, Damaged] = {}
        for name in (HEADER, COPY):
            try:
                if (header := self._read_header(name)) is not None:
                    found[name] = header
            except Damaged as error:
                damages[name] = error
        if len({tuple(identity_of(header)) for header in found.values()}) > 1:
            raise Damaged(self.root / HEADER, f"it and its copy {COPY} are of different runs; remove the one that does not belong here")
        if HEADER in found:
            return found[HEADER], ""
        if COPY in found:
            return found[COPY], f"{damages.get(HEADER, f'{self.root / HEADER} is missing')}; its copy {COPY} is used"
        for damage in damages.values():
            raise damage
        return None, ""

    def _read_header(self, name: str) -> dict[str, Any] | None:
        """Return the content of run.json or of its copy, or None if it is not there."""
        path = self.root / name
        try:
            header = formats.decode_json(self.folder.read_text(name), path)
        except FileNotFoundError:
            return None
        version = header.get("format_version") if isinstance(header, dict) else None
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise ValueError(
                f"{self.root} was written by a newer swamp (format {version}, this one reads up to {FORMAT_VERSION}); "
                "upgrade swamp to use it"
            )
        if isinstance(version, int) and version < FORMAT_VERSION:
            raise ValueError(f"{self.root} has format {version}, which this swamp does not read")
        _check_header(header, path)
        return dict(header)

    def identity(self) -> list[str]:
        """Return what tells this run from all others, for checksums: the hash of its configuration and the fingerprint of its task.
        A group of runs has none."""
        header = self.header()
        return [] if header is None else identity_of(header)

    def write_header(self, header: Mapping[str, Any]) -> None:
        """Write run.json and then its copy. A kill in between leaves the old copy, which is as good."""
        text = formats.encode_json({**header, "format_version": FORMAT_VERSION}).decode()
        for name in (HEADER, COPY):
            self.write_text(name, text)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory against other processes. The lock ends with this process, and child processes do not inherit it."""
        self.folder.make()
        with self.folder.opened(".lock", os.O_RDWR | os.O_CREAT) as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Locked(f"{self.root} is in use by another process; wait for it to end or stop it") from None
            except OSError as error:  # of a network file system that has no locks
                error.filename = str(self.root / ".lock")
                raise
            yield

    def finish(self) -> None:
        """Write the manifest and remove the work directory."""
        known: dict[str, str | None] = {}
        for name in self._results():
            known[name] = self.checksum(name, known)
            if known[name] is None:
                raise Damaged(self.root / name, "it is no file that can be read, and no link to ../objects/KEY.safetensors")
        self.folder.write("manifest.json", formats.encode_json(known), self.folder / "work")
        self.clear_work()

    def _results(self) -> list[str]:
        cycles = [name for name in self.folder.names() if re.fullmatch(r"cycle-\d+", name)]
        inside = [f"{folder}/{name}" for folder in ("objects", *cycles) for name in (self.folder / folder).names()]
        return [*inside, "results.json", "metrics.jsonl"]

    def finished(self) -> bool:
        return self.folder.has("manifest.json")

    def manifest(self) -> dict[str, str]:
        """Return the checksums of the results of a finished run, by file name."""
        path = self.root / "manifest.json"
        listed = formats.decode_json(self.folder.read_text("manifest.json"), path)
        if not isinstance(listed, dict) or not all(isinstance(checksum, str) for checksum in listed.values()):
            raise Damaged(path, "it is no list of checksums")
        return listed

    def checksum(self, name: str, known: Mapping[str, str | None] = MappingProxyType({})) -> str | None:
        """Return the checksum of a file, as the manifest lists it; None where the file cannot be read. That of a link in cycle-NN is the
        checksum of its object. `known` has checksums of files that were read already."""
        try:
            if (target := self.folder.link_target(name)) is not None:
                link = LINK.fullmatch(target) if name.startswith("cycle-") and name.count("/") == 1 else None
                return self.checksum(link[1], known) if link and self.folder.link_target(link[1]) is None else None
            return known[name] if name in known else self.folder.sha256(name)
        except (OSError, Damaged):
            return None

    def altered(self, checksums: Mapping[str, str | None] = MappingProxyType({})) -> str:
        """Say which files of a finished run are missing or changed since the manifest was written; an empty text if none is. `checksums`
        are those of files that were read already, which are not read again."""
        try:
            listed = self.manifest()
        except Damaged:
            return "manifest.json was damaged"
        known = dict(checksums)
        for name in listed:
            known[name] = self.checksum(name, known)
        gone = [name for name in listed if known[name] is None and not self._is_there(name)]
        changed = [name for name, checksum in listed.items() if known[name] != checksum and name not in gone]
        return " and ".join(
            f"{what} ({_some(names)})"
            for what, names in (
                (f"{len(gone)} of {len(listed)} files went missing", gone),
                (f"{len(changed)} changed", changed),
            )
            if names
        )

    def _is_there(self, name: str) -> bool:
        try:
            link = LINK.fullmatch(self.folder.link_target(name) or "")
            return self.folder.has(link[1] if link else name)
        except Damaged:
            return True


class StoreView(Store):
    """A run directory that is only looked at, and the caches and directories in which its run will find more. Nothing is written."""

    def __init__(self, root: Path, others: Sequence[Path]) -> None:
        super().__init__(root)
        self.folders = [Folder(place, "objects") for place in dict.fromkeys((root, *others))]

    def _find(self, name: str) -> Folder | None:
        return next((folder for folder in self.folders if folder.has(name) and _is_sound(folder, name)), None)

    def load_mask(self, digest: str) -> Mask | None:
        try:
            return super().load_mask(digest)
        except Damaged:
            return None  # The run will put it aside.


def _is_sound(folder: Folder, name: str) -> bool:
    """Return whether an object can be read. Weights are not read for that, which takes long."""
    if not name.endswith(".json"):
        return True
    try:
        return bool(read_checked(folder, name))
    except (OSError, Damaged):
        return False


def identity_of(header: Mapping[str, Any]) -> list[str]:
    """Return what tells the run with this header from all others."""
    return [header["config_hash"], header["task"], header.get("problem", "")]


def began_with(header: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind of device and the version of torch that the run with this header began with. Headers of earlier versions name the
    device of the last process alone."""
    return header.get("device", header["config"].get("device", "")).split(":")[0], header["versions"]["torch"]


def _check_header(header: Any, path: Path) -> None:
    """Raise `Damaged` unless the header of a run has what every command relies on."""
    for name, kind in HEADER_TYPES.items():
        if not isinstance(header, dict) or not isinstance(header.get(name), kind):
            raise Damaged(path, f"it is not that of a run: {name} is missing or wrong")
    if not all(isinstance(header["versions"].get(name), str) for name in ("swamp", "torch", "python")):
        raise Damaged(path, "it is not that of a run: its versions are missing or wrong")
    if not isinstance(header.get("problem", ""), str):
        raise Damaged(path, "it is not that of a run: its problem is wrong")
    if not all(isinstance(name, str) for name in (header.get("device", ""), header["config"].get("device", ""))):
        raise Damaged(path, "it is not that of a run: its device is wrong")
    if not isinstance(layers := header.get("layers", []), list) or not all(isinstance(name, str) for name in layers):
        raise Damaged(path, "it is not that of a run: its layers are wrong")
    parts = header.get("task_parts", {})
    if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
        raise Damaged(path, "it is not that of a run: the parts of its task are wrong")


def _some(names: Sequence[str]) -> str:
    """List the first four names.

    >>> _some("abcdef")
    'a, b, c, d, …'
    """
    return ", ".join([*names[:4], *(["…"] if len(names) > 4 else [])])
