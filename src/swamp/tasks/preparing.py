"""Prepares image files for training: decodes and scales each once, and stores them in shards (`swamp prepare`).

The images of a split are shared out to shards in their order, by a rule that knows nothing of workers. A worker process makes a whole
shard: it writes it to a temporary file, syncs it, gives it its name, and then writes a record of it to the journal. Whoever is killed at
whatever instant leaves shards that are whole, and temporary files that the next call removes. That call makes the shards that lack a
record, and so ends with the same bytes as one that was never stopped. The index is written last, from the records.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from swamp.core.errors import brief
from swamp.core.keys import key_of
from swamp.tasks.datasets.dataset import Files, FileSet
from swamp.tasks.datasets.decoding import RESAMPLING, Pixels, UnreadableImage, encode_jpeg, find_decoder, scaled
from swamp.tasks.datasets.shard_writing import UNFINISHED, ShardRecord, ShardWriter, write_atomically, write_index, write_split
from swamp.tasks.datasets.shards import FORMAT, JOURNAL, JPEG, PLAN, RAW, ShardIndex, check_size, damage_of

CORRUPT = "corrupt.txt"
LOCK = "prepare.lock"
NUM_SHARDS = {"train": 256}  # Few enough to be mapped at the same time, and many enough to keep all workers busy until the end.
NUM_FURTHER_SHARDS = 64
LEAST_IMAGES = 64  # of a shard
REPORTED = 16  # images between two reports of progress
SAMPLE = 96  # images that are decoded to know how large all will be

ImageReport = Callable[[int], None]  # gets the number of images that were done since the last report


class PreparationFailed(RuntimeError):
    """A preparation came to an end before it was done, or left images out."""


@dataclass(frozen=True)
class PreparationSettings:
    """Whatever decides the stored bytes. `size` is the shorter side of an image, which is never enlarged; 0 keeps all sizes."""

    name: str
    size: int
    store: str
    quality: int
    decoder: str
    further: tuple[tuple[str, Any], ...] = ()  # of single data sets, such as how test images are held out

    def as_dict(self) -> dict[str, Any]:
        quality = self.quality if self.store == JPEG else 0  # Raw pixels have none.
        own = {"name": self.name, "size": self.size, "store": self.store, "quality": quality, "decoder": self.decoder}
        return {**own, "resampling": RESAMPLING, **dict(self.further)}


@dataclass(frozen=True)
class ShardJob:
    """One shard to make: its images, and where it goes. It travels to a worker process."""

    folder: Path
    file: str
    settings: PreparationSettings
    root: Path
    names: tuple[str, ...]
    labels: tuple[int, ...]


class SplitPlan(msgspec.Struct, frozen=True):
    """How the images of a split are shared out to shards. `listing` is a key of their names and labels."""

    count: int
    images_per_shard: int
    listing: str
    classes: tuple[int, ...] | None = None


class PreparationPlan(msgspec.Struct, frozen=True):
    """The content of the journal's `plan.json`."""

    format: int
    settings: dict[str, Any]
    splits: dict[str, SplitPlan]


# -- one image, one shard ---------------------------------------------------------------------------------------------------------------


def read_source(path: Path) -> bytes:
    """Read an image file. What is no regular file, and an unreadable sector, is a corrupt image; a missing file is an error of its own."""
    try:
        # Opening a pipe without O_NONBLOCK would wait for its other end.
        with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableImage("it is no regular file")
            return file.readall()
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.EIO, errno.ENXIO):
            raise UnreadableImage("it is no regular file" if error.errno != errno.EIO else os.strerror(errno.EIO)) from None
        raise


def prepared_image(data: bytes, settings: PreparationSettings) -> tuple[bytes | Pixels, int, int]:
    """Return what is stored of an image, and its height and width."""
    pixels = scaled(find_decoder(settings.decoder)(data, settings.size), settings.size)
    stored: bytes | Pixels = pixels if settings.store == RAW else encode_jpeg(pixels, settings.quality, settings.decoder)
    return stored, pixels.shape[0], pixels.shape[1]


def plain_name(name: str) -> str:
    """Return a file's name as text of one line, whatever its bytes are."""
    return os.fsencode(name).decode("utf-8", "backslashreplace").replace("\n", "\\n")


def make_shard(job: ShardJob, report: ImageReport) -> ShardRecord:
    """Make a shard and write its record."""
    unreported = 0
    with ShardWriter(job.folder, job.file) as writer:
        for name, label in zip(job.names, job.labels, strict=True):
            try:
                stored, height, width = prepared_image(read_source(job.root / name), job.settings)
            except UnreadableImage as error:
                writer.leave_out(plain_name(name), str(error))
            else:
                writer.add(plain_name(name), stored, height, width, label)
            unreported += 1
            if unreported == REPORTED:
                report(unreported)
                unreported = 0
        record = writer.close()
    write_atomically(record_path(job.folder, job.file), msgspec.json.encode(record))
    report(unreported)
    return record


def record_path(folder: Path, file: str) -> Path:
    return folder / JOURNAL / f"{file}.json"


def read_record(folder: Path, file: str) -> ShardRecord | None:
    """Read the record of a shard; None where there is none that can be used."""
    try:
        return msgspec.json.decode(record_path(folder, file).read_bytes(), type=ShardRecord)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


# -- a whole preparation ----------------------------------------------------------------------------------------------------------------


class Preparation:
    """The shards of a data set in one folder: those that are done, and those that are left."""

    def __init__(self, source: FileSet, settings: PreparationSettings, folder: Path) -> None:
        self.source, self.settings, self.folder = source, settings, folder

    @cached_property
    def files(self) -> dict[str, Files]:
        return {name: self.source.split(name) for name in self.source.split_names}

    def plan_of(self, split: str) -> SplitPlan:
        files = self.files[split]
        listing = key_of("listing", names=list(files.names), labels=files.labels.tolist())
        classes = None if files.classes is None else tuple(files.classes.tolist())
        return SplitPlan(len(files.names), images_per_shard(split, len(files.names)), listing, classes)

    def begin(self) -> None:
        """Compare what is asked for with what the folder holds, write the plan, and remove temporary files. The folder must be locked."""
        (self.folder / JOURNAL).mkdir(exist_ok=True)
        wanted = PreparationPlan(FORMAT, self.settings.as_dict(), {name: self.plan_of(name) for name in self.files})
        before = read_plan(self.folder)
        if before and any((self.folder / JOURNAL).glob("*.bin.json")):  # As long as no shard is done, anything may change.
            require_same(self.folder, before, wanted)
            wanted = msgspec.structs.replace(wanted, splits={**wanted.splits, **before.splits})  # in the order of one call for all
        if wanted != before:
            write_atomically(self.folder / JOURNAL / PLAN, msgspec.json.format(msgspec.json.encode(wanted), indent=1))
        self.plan = wanted
        self.remove_temporaries()

    def remove_temporaries(self) -> None:
        for place in (self.folder, self.folder / JOURNAL):
            for path in place.glob(f"*{UNFINISHED}"):
                with suppress(FileNotFoundError):
                    path.unlink()

    def jobs(self, split: str) -> Iterator[ShardJob]:
        files, plan = self.files[split], self.plan.splits[split]
        labels = files.labels.tolist()
        for number, first in enumerate(range(0, plan.count, plan.images_per_shard)):
            rows = slice(first, first + plan.images_per_shard)
            yield ShardJob(self.folder, shard_file(split, number), self.settings, files.root, tuple(files.names[rows]), tuple(labels[rows]))

    def unfinished(self, verify: bool = False) -> list[ShardJob]:
        """Return the shards that are to be made. If `verify`, the checksums of all others are compared."""
        return [job for split in self.files for job in self.jobs(split) if not is_done(job, verify)]

    def finish(self) -> ShardIndex:
        """Write tables, index and list of corrupt images. All shards must have been made."""
        splits = {}
        for name, plan in self.plan.splits.items():
            files = [shard_file(name, number) for number in range(-(-plan.count // plan.images_per_shard))]
            records = [record for file in files if (record := read_record(self.folder, file))]
            if len(records) < len(files):  # of a split that this call does not prepare
                raise PreparationFailed(f"{self.folder} has lost the records of {name!r}; prepare {name!r} again")
            if not any(record.rows for record in records):
                raise PreparationFailed(f"none of the {plan.count:,} images of {name!r} can be read ({' '.join(records[0].corrupt[0])} …)")
            splits[name] = write_split(self.folder, name, records, plan.classes)
            for record in records:
                if not record.rows:
                    (self.folder / record.stored.file).unlink(missing_ok=True)
        source = self.source
        classes = tuple(map(plain_name, source.class_names))
        index = ShardIndex(FORMAT, self.plan.settings, source.mean, source.std, classes, splits)
        lines = [f"{name}\t{image}\t{why}\n" for name, split in splits.items() for image, why in split.corrupt]
        if lines:
            write_atomically(self.folder / CORRUPT, "".join(lines).encode())
        else:
            (self.folder / CORRUPT).unlink(missing_ok=True)
        write_index(self.folder, index)
        self.remove_temporaries()
        return index

    def estimate(self, jobs: Sequence[ShardJob]) -> float:
        """Return about how many bytes an image of these shards takes, from a few of them; 0 where none of those can be read."""
        images = [(job, index) for job in jobs for index in range(len(job.names))]
        sizes = []
        for job, index in images[:: max(1, len(images) // SAMPLE)][:SAMPLE]:
            with suppress(UnreadableImage):
                stored, _, _ = prepared_image(read_source(job.root / job.names[index]), self.settings)
                sizes.append(stored.nbytes if isinstance(stored, np.ndarray) else len(stored))
        return sum(sizes) / len(sizes) if sizes else 0.0


def images_per_shard(split: str, count: int) -> int:
    return max(LEAST_IMAGES, -(-count // NUM_SHARDS.get(split, NUM_FURTHER_SHARDS)))


def shard_file(split: str, number: int) -> str:
    return f"{split}-{number:05d}.bin"


def is_done(job: ShardJob, verify: bool) -> bool:
    """Return whether a shard is there and as it was written. Images that could not be read are tried again, as they may be better now."""
    record = read_record(job.folder, job.file)
    if record is None:
        return False
    if record.rows:
        try:
            check_size(job.folder, record.stored)
        except ValueError:
            return False
        if verify and damage_of(job.folder, record.stored):
            return False
    corrupt = {name for name, _ in record.corrupt}
    return not any(is_readable(job.root / name, job.settings) for name in job.names if plain_name(name) in corrupt)


def is_readable(path: Path, settings: PreparationSettings) -> bool:
    try:
        prepared_image(read_source(path), settings)
    except UnreadableImage:
        return False
    return True


def read_plan(folder: Path) -> PreparationPlan | None:
    """Read the plan of a folder that was prepared before, or in part."""
    path = folder / JOURNAL / PLAN
    try:
        return msgspec.json.decode(path.read_bytes(), type=PreparationPlan)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error}); prepare the images in another folder") from None


def require_same(folder: Path, before: PreparationPlan, wanted: PreparationPlan) -> None:
    """Check that a folder was begun with the same settings and the same files."""
    if before.format != wanted.format:
        raise ValueError(f"{folder} was prepared with format {before.format}, not {wanted.format}; prepare into another folder")
    for name in (*wanted.settings, *before.settings):
        known, value = (one.settings.get(name) for one in (before, wanted))
        if known != value:
            raise ValueError(f"{folder} was prepared with {name} = {brief(known)}, not {brief(value)}; prepare into another folder")
    for name, plan in wanted.splits.items():
        if (known := before.splits.get(name)) and known != plan:
            changed = (
                f"{plan.count:,} images instead of {known.count:,}" if plan.count != known.count else "images of other names or labels"
            )
            raise ValueError(f"the files of {name!r} have changed since {folder} was begun: {changed}; prepare into another folder")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder for prepared images, or take one that has some, and lock it against other preparations."""
    try:
        strange = folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / LOCK).is_file()))
    except PermissionError:
        strange = False
    if strange:
        raise ValueError(f"{folder} holds something else than prepared images; name an empty folder, or one that does not exist")
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{folder} is being prepared by another process; wait for it to end, or stop it") from None
        yield
    finally:
        os.close(descriptor)
