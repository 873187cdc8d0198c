"""Prepares a data set as a user asks for it: checks the request, says what it takes, has the shards made, and says what became of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swamp.core.errors import nearest
from swamp.core.machine import num_cores
from swamp.drawing.numbers import duration
from swamp.drawing.tables import Table
from swamp.preparation_display import preparation_display
from swamp.tasks.datasets import official_sets, preparable_sets
from swamp.tasks.datasets.dataset import FileSet, HeldOut
from swamp.tasks.datasets.decoding import best_decoder, find_decoder
from swamp.tasks.datasets.folder import folder_files
from swamp.tasks.datasets.shards import JPEG, RAW, ShardIndex
from swamp.tasks.preparing import CORRUPT, Preparation, PreparationFailed, PreparationSettings, ShardJob, locked, read_plan
from swamp.tasks.shard_workers import make_shards
from swamp.terminal import print_line, print_remark, print_table

SIZES = {"tiny-imagenet": 64}  # of the shorter side, where it is not the usual one
USUAL_SIZE, USUAL_QUALITY = 256, 90
TRAINING_RATE = 6845  # images a second; measured for a compiled ResNet-50 in bfloat16 at 224 pixels on one H200
NAMED = 3  # corrupt images that are named on the screen; a file lists all


@dataclass(frozen=True)
class PreparationRequest:
    """What the user asks for. None means: as the folder was begun, or the default."""

    name: str
    data: Path | None
    out: Path | None
    size: int | None
    store: str | None
    quality: int | None
    decoder: str | None
    workers: int
    hold_out: float
    hold_out_seed: int | None
    verify: bool

    def check(self) -> None:
        known = preparable_sets()
        if self.name in official_sets() and self.name not in known and self.name.startswith("imagenet"):
            raise ValueError(
                f"{self.name} is a test set for networks trained on imagenet: `swamp prepare imagenet` prepares it where it finds it"
            )
        if self.name not in known:
            raise ValueError(f"{self.name!r} cannot be prepared; {nearest(self.name, known)}")
        if self.out is None:
            raise ValueError("name the folder for the prepared images: --out DIR")
        for option, value, least, most in (
            ("--size", self.size, 1, 65_535),
            ("--quality", self.quality, 1, 100),
            ("--workers", self.workers, 0, 1024),
            ("--hold-out-seed", self.hold_out_seed, 0, 2**63 - 1),
        ):
            if value is not None and not least <= value <= most:
                raise ValueError(f"{option} {value}: expected a whole number from {least:,} to {most:,}")
        if self.store not in (None, RAW, JPEG):
            raise ValueError(f"--store {self.store}: {nearest(self.store or '', (RAW, JPEG))}")
        if self.decoder is not None:
            find_decoder(self.decoder)
        if self.hold_out and self.name != "folder":
            raise ValueError(f"--hold-out is for `swamp prepare folder`: {self.name} has test images")
        if self.hold_out_seed is not None and not self.hold_out:
            raise ValueError(f"--hold-out-seed {self.hold_out_seed}: no image is held out; give --hold-out with it")
        if not 0 <= self.hold_out < 2**63 or (self.hold_out > 1 and self.hold_out != int(self.hold_out)):
            raise ValueError(f"--hold-out {self.hold_out:g}: expected a share below 1, or a whole number of images")

    def source(self) -> FileSet:
        """List the files of the data set."""
        data = str(self.data or "")
        if not self.hold_out:
            return preparable_sets()[self.name](data)
        return folder_files(data, self.held_out, self.hold_out_seed or 0)

    @property
    def held_out(self) -> HeldOut:
        return self.hold_out if self.hold_out < 1 else int(self.hold_out)

    def settings(self, folder: Path) -> PreparationSettings:
        """Return the settings: as they are asked for, or else as the folder was begun, or else the usual ones."""
        before = plan.settings if (plan := read_plan(folder)) else {}

        def chosen(name: str, default: Any) -> Any:
            asked = getattr(self, name)
            return asked if asked is not None else before.get(name) or default

        store, decoder = chosen("store", RAW), chosen("decoder", None) or best_decoder()
        find_decoder(decoder)
        if self.quality is not None and store == RAW:
            raise ValueError("--quality is for JPEG files: give it with --store jpeg")
        further = (("hold_out", self.held_out), ("hold_out_seed", self.hold_out_seed or 0)) if self.hold_out else ()
        return PreparationSettings(
            self.name,
            chosen("size", SIZES.get(self.name, USUAL_SIZE)),
            store,
            chosen("quality", USUAL_QUALITY),
            decoder,
            further,
        )


def print_preparable(plain: bool) -> None:
    rows = [[name, official.title if (official := official_sets().get(name)) else "any folder of classes"] for name in preparable_sets()]
    print_table(Table("Data sets that can be prepared", ["name", "title"], rows), plain)


def run_preparation(request: PreparationRequest, quiet: bool, plain: bool) -> None:
    """Prepare a data set, or go on with it."""
    request.check()
    folder = request.out
    assert folder is not None
    preparation = Preparation(request.source(), request.settings(folder), folder)
    with locked(folder):
        for remark in differences_from_published(preparation):
            print_remark(remark)
        preparation.begin()
        jobs = preparation.unfinished(request.verify)
        began, num_images = time.monotonic(), sum(len(job.names) for job in jobs)
        workers = min(request.workers or num_cores(), max(len(jobs), 1))
        if jobs:
            size = preparation.estimate(jobs)
            require_space(folder, jobs, size, preparation)
            if not quiet:
                for line in what_it_takes(folder, jobs, size, preparation, workers):
                    print_line(line)
            try:
                with preparation_display(num_images, quiet, plain) as report:
                    make_shards(jobs, workers, report)
            finally:
                preparation.remove_temporaries()  # those of workers that an error ended, which may fill the disk
        index = preparation.finish()
    if not quiet:
        print_outcome(folder, index, num_images, time.monotonic() - began)
    require_all_readable(folder, index)


def differences_from_published(preparation: Preparation) -> list[str]:
    """Say where the numbers of classes and images are not the published ones. A part of a data set may be what somebody wants."""
    remarks = []
    for name, (num_classes, num_images) in preparation.source.published.items():
        if name not in preparation.files:
            title = official_sets()[name].title
            remarks.append(f"{title} was not found beside the others and is not prepared; run again when it is there, to add it")
            continue
        files = preparation.files[name]
        found = int(files.labels.max()) + 1, len(files.names)
        if found != (num_classes, num_images):
            remarks.append(f"{name!r} has {found[0]:,} classes and {found[1]:,} images; published are {num_classes:,} and {num_images:,}")
    return remarks


def require_space(folder: Path, jobs: Sequence[ShardJob], size: float, preparation: Preparation) -> None:
    needed, free = size * sum(len(job.names) for job in jobs), shutil.disk_usage(folder).free
    if needed > free:
        smaller = "" if preparation.settings.store == JPEG else "--store jpeg takes a fifth or less, "
        raise ValueError(
            f"the images take about {needed / 1e9:,.1f} GB, and {folder} has {free / 1e9:,.1f} GB free: {smaller}a smaller --size "
            "takes less, or make space; what is prepared is kept"
        )


def what_it_takes(folder: Path, jobs: Sequence[ShardJob], size: float, preparation: Preparation, workers: int) -> list[str]:
    """Say what the preparation will take, and what a training will read."""
    count, settings = sum(len(job.names) for job in jobs), preparation.settings
    done = sum(len(files.names) for files in preparation.files.values()) - count
    stored = "raw pixels" if settings.store == RAW else f"JPEG files of quality {settings.quality}"
    counts = ", ".join(f"{name} {len(files.names):,}" for name, files in preparation.files.items())
    return [
        f"{counts}; {count:,} are to be prepared" + (f", {done:,} are done" if done else ""),
        f"shorter side {settings.size}, {stored}, decoder {settings.decoder}, {workers} {'process' if workers == 1 else 'processes'}",
        f"disk: about {size * count / 1e9:,.1f} GB of {shutil.disk_usage(folder).free / 1e9:,.1f} GB that are free",
        f"training reads {size / 1e3:,.0f} kB an image, {size * TRAINING_RATE / 1e9:,.2f} GB/s at {TRAINING_RATE:,} images/s "
        "(a compiled ResNet-50 on one H200), unless memory holds the files",
    ]


def print_outcome(folder: Path, index: ShardIndex, num_images: int, seconds: float) -> None:
    if num_images:
        print_line(f"{num_images:,} images in {duration(seconds)}, {num_images / max(seconds, 1e-9):,.0f} a second")
    total = sum(stored.bytes for split in index.splits.values() for stored in split.files)
    print_line(f"{folder} is prepared{'' if num_images else ' already'}: {total / 1e9:,.2f} GB; train with --data {folder}")


def require_all_readable(folder: Path, index: ShardIndex) -> None:
    corrupt = [(f"{name}: {image}", why) for name, split in index.splits.items() for image, why in split.corrupt]
    if corrupt:
        named = "; ".join(f"{image} ({why})" for image, why in corrupt[:NAMED]) + ("; …" if len(corrupt) > NAMED else "")
        what = "1 image could not be read and is" if len(corrupt) == 1 else f"{len(corrupt):,} images could not be read and are"
        raise PreparationFailed(f"{what} left out, as {folder / CORRUPT} says: {named}; if they are replaced, run again")
