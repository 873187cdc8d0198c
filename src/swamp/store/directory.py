"""A run directory: its header, lock, journal, readable files and manifest, around the objects of `store.objects`.

DIR/run.json            format version, configuration and its hash, versions
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

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from swamp.store import files
from swamp.store.files import Damaged, write_durably
from swamp.store.objects import ObjectStore

FORMAT_VERSION = 1

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


class Store(ObjectStore):
    """A run directory. With a cache, objects are also shared with other runs."""

    def __init__(self, root: Path, cache: Path | None = None) -> None:
        super().__init__(root, cache)
        self.tracking = root / "tracking"
        self.journal = Journal(root / "timing.jsonl")

    def link_row(self, cycle: int, objects: Mapping[str, str]) -> None:
        """Link cycle-03/NAME.safetensors to objects/KEY.safetensors for each object that is kept, and remove links to the others."""
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
        """Write a file of the directory, unless it holds this text already."""
        path, data = self.root / name, text.encode()
        if not (path.exists() and path.read_bytes() == data):
            write_durably(path, data, self.work)

    def log_timing(self, record: dict[str, Any]) -> None:
        self.journal.log(record)

    def last_moved(self) -> float:
        """Return the time of the last write, by the clock of the file system."""
        times = []
        for path in (self.root / "run.json", self.journal.path, self.root / "results.json", self.objects, self.work):
            with contextlib.suppress(FileNotFoundError):
                times.append(path.stat().st_mtime)
        return max(times, default=0.0)

    def header(self) -> dict[str, Any] | None:
        """Return the content of run.json, or None where there is no run yet."""
        path = self.root / "run.json"
        if not path.exists():
            return None
        header: dict[str, Any] = files.decode_json(path)
        if header["format_version"] > FORMAT_VERSION:
            raise ValueError(
                f"{self.root} was written by a newer swamp (format {header['format_version']}, this one reads up to {FORMAT_VERSION}); "
                "upgrade swamp to use it"
            )
        if header["format_version"] < FORMAT_VERSION:
            raise ValueError(f"{self.root} has format {header['format_version']}, which this swamp does not read")
        return header

    def write_header(self, header: Mapping[str, Any]) -> None:
        self.write_text("run.json", files.encode_json({**header, "format_version": FORMAT_VERSION}).decode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory against other processes. The lock ends with this process, and child processes do not inherit it."""
        self.root.mkdir(parents=True, exist_ok=True)
        with open(self.root / ".lock", "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Locked(f"{self.root} is in use by another process; wait for it to end or stop it") from None
            yield

    def finish(self) -> None:
        """Write the manifest and remove the work directory."""
        listed = {str(p.relative_to(self.root)): files.sha256(p) for p in self._results()}
        write_durably(self.root / "manifest.json", files.encode_json(listed), self.work)
        self.clear_work()

    def _results(self) -> list[Path]:
        linked = sorted(self.root.glob("cycle-*/*"))
        return [*sorted(self.objects.glob("*")), *linked, self.root / "results.json", self.root / "metrics.jsonl"]

    def finished(self) -> bool:
        return (self.root / "manifest.json").exists()

    def manifest(self) -> dict[str, str]:
        """Return the checksums of the results of a finished run, by file name."""
        listed: dict[str, str] = files.decode_json(self.root / "manifest.json")
        return listed

    def checksum(self, name: str) -> str | None:
        """Return the checksum of a file, as the manifest lists it; None where the file cannot be read."""
        try:
            return files.sha256(self.root / name)
        except OSError:
            return None

    def altered(self, checksums: Mapping[str, str | None] = MappingProxyType({})) -> str:
        """Say which files of a finished run are missing or changed since the manifest was written; an empty text if none is. `checksums`
        are those of files that were read already, which are not read again."""
        try:
            listed = self.manifest()
        except Damaged:
            return "manifest.json was damaged"
        gone = [name for name in listed if not (self.root / name).exists()]
        known = {name: checksums[name] if name in checksums else self.checksum(name) for name in listed if name not in gone}
        changed = [name for name, checksum in known.items() if checksum != listed[name]]
        return " and ".join(
            f"{what} ({_some(names)})"
            for what, names in (
                (f"{len(gone)} of {len(listed)} files went missing", gone),
                (f"{len(changed)} changed", changed),
            )
            if names
        )


def _some(names: Sequence[str]) -> str:
    """List the first four names.

    >>> _some("abcdef")
    'a, b, c, d, …'
    """
    return ", ".join([*names[:4], *(["…"] if len(names) > 4 else [])])


def cache_part(cache: Path, device: str) -> Path:
    """Return the part of a shared cache for this torch and this kind of device: results of others differ in their last bits.

    A cache that cannot be used is a ValueError. Nothing is written; `make_cache` makes the directory.
    """
    if (cache / "run.json").exists():
        raise ValueError(f"--cache {cache} is a run directory; a cache is a directory of its own")
    existing = next(path for path in (cache, *cache.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ValueError(f"--cache {cache} cannot be used: {existing} is not a directory")
    return cache / f"torch-{torch.__version__}-{device.split(':')[0]}"


def make_cache(part: Path) -> None:
    """Make the directory of a cache that `cache_part` returned."""
    try:
        files.make_directory(part / "objects")
    except OSError as error:
        raise ValueError(f"--cache {part.parent} cannot be used: {error.strerror}") from None


def runs_in(directory: Path) -> list[Path]:
    """Return the run directories that a directory stands for: itself, or the runs right below it (a group of seeds)."""
    if (directory / "run.json").exists():
        return [directory]
    below = sorted((path.parent for path in directory.glob("*/run.json")), key=lambda path: (len(path.name), path.name))
    if not below:
        what = "does not exist" if not directory.exists() else "holds no run (no run.json in it or right below it)"
        raise ValueError(f"{directory} {what}")
    return below
