from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from swamp.tasks import preparing, shard_workers
from swamp.tasks.datasets.imagenet import imagenet_to_prepare, read_imagenet
from swamp.tasks.datasets.shards import ShardIndex, ShardSet, open_shards, verify
from swamp.tasks.preparing import Preparation, PreparationFailed, PreparationSettings, ShardJob, locked, prepared_image
from swamp.tasks.shard_workers import make_shards
from tests.support.made_up_trees import SYNSETS, imagenet_tree, prepared_bytes

SETTINGS = PreparationSettings("imagenet", 32, "raw", 90, "pil")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "LEAST_IMAGES", 5)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return imagenet_tree(tmp_path / "data")


def prepare(
    data: Path, folder: Path, settings: PreparationSettings = SETTINGS, workers: int = 1, verify: bool = False
) -> tuple[ShardIndex, list[str]]:
    """Prepare images; return the index, and the files of the shards that were made."""
    with locked(folder):
        preparation = Preparation(imagenet_to_prepare(str(data)), settings, folder)
        preparation.begin()
        jobs = preparation.unfinished(verify)
        make_shards(jobs, workers, lambda count: None)
        return preparation.finish(), [job.file for job in jobs]


def test_images_are_stored_in_the_order_of_their_files(data: Path, tmp_path: Path) -> None:
    index, made = prepare(data, tmp_path / "out")
    assert made == ["train-00000.bin", "train-00001.bin", "train-00002.bin", "test-00000.bin", "test-00001.bin", "imagenet-r-00000.bin"]
    assert index.settings == SETTINGS.as_dict()
    found, files = read_imagenet(str(tmp_path / "out")), imagenet_to_prepare(str(data))
    assert isinstance(found, ShardSet)
    assert (found.num_classes, found.mean) == (3, files.mean)
    for split in ("train", "test", "imagenet-r"):
        stored, listed = found.split(split), files.split(split)
        assert stored.labels.tolist() == listed.labels.tolist()
        assert (tmp_path / "out" / f"{split}.txt").read_text().splitlines() == list(listed.names)
        for number, name in enumerate(listed.names):
            pixels, height, width = prepared_image((listed.root / name).read_bytes(), SETTINGS)
            assert np.array_equal(stored.pixels(number), pixels)
            assert stored.sizes[number].tolist() == [height, width]
            assert min(height, width) == 32
    classes = found.split("imagenet-r").classes
    assert classes is not None
    assert classes.tolist() == [1, 2]


def test_the_number_of_workers_decides_nothing(data: Path, tmp_path: Path) -> None:
    prepare(data, tmp_path / "one")
    prepare(data, tmp_path / "three", workers=3)
    assert prepared_bytes(tmp_path / "one") == prepared_bytes(tmp_path / "three")


def test_what_is_done_is_not_done_again(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(data, out)
    before = prepared_bytes(out)
    assert prepare(data, out)[1] == []
    shutil.rmtree(data / "imagenet-r")  # What was prepared stays, also without its source.
    assert prepare(data, out)[1] == []
    assert prepared_bytes(out) == before


@pytest.mark.parametrize("lost", ["train-00001.bin", "journal/train-00001.bin.json", "train.npy", "index.json"])
def test_what_is_missing_is_made_again(lost: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(data, out)
    before = prepared_bytes(out)
    (out / lost).unlink()
    _, made = prepare(data, out)
    assert made == (["train-00001.bin"] if "00001" in lost else [])
    assert prepared_bytes(out) == before


def test_damage_of_the_same_size_is_found_by_verification(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(data, out)
    before = prepared_bytes(out)
    path = out / "train-00002.bin"
    path.write_bytes(bytes(path.stat().st_size))
    assert prepare(data, out)[1] == []
    assert len(verify(out)) == 1
    assert prepare(data, out, verify=True)[1] == ["train-00002.bin"]
    assert prepared_bytes(out) == before


def test_a_test_set_that_comes_later_is_added(data: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    shutil.copytree(data / "imagenet" / "val", data / "sketch")
    prepare(data, whole)
    (data / "imagenet-r").rename(tmp_path / "aside")
    prepare(data, out)
    assert open_shards(out).split_names == ("train", "test", "imagenet-sketch")
    digest = open_shards(out).digest
    (tmp_path / "aside").rename(data / "imagenet-r")
    assert prepare(data, out)[1] == ["imagenet-r-00000.bin"]
    assert open_shards(out).digest == digest
    assert prepared_bytes(out) == prepared_bytes(whole)


def test_other_settings_and_other_files_are_refused(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(data, out)
    before = prepared_bytes(out)
    with pytest.raises(ValueError, match="out was prepared with size = 32, not 33; prepare into another folder"):
        prepare(data, out, PreparationSettings("imagenet", 33, "raw", 90, "pil"))
    with pytest.raises(ValueError, match=r"out was prepared with hold_out = None, not 0.1"):
        prepare(data, out, PreparationSettings("imagenet", 32, "raw", 90, "pil", (("hold_out", 0.1),)))
    (data / "imagenet" / "train" / SYNSETS[0] / f"{SYNSETS[0]}_0.JPEG").unlink()
    with pytest.raises(ValueError, match=r"the files of 'train' have changed since .*out was begun: 11 images instead of 12; prepare into"):
        prepare(data, out)
    assert prepared_bytes(out) == before


def test_stored_jpeg_files_are_smaller_and_look_alike(data: Path, tmp_path: Path) -> None:
    raw, _ = prepare(data, tmp_path / "raw")
    jpeg, _ = prepare(data, tmp_path / "jpeg", PreparationSettings("imagenet", 32, "jpeg", 95, "pil"))
    assert jpeg.settings["quality"] == 95
    assert raw.settings["quality"] == 0
    assert sum(shard.bytes for shard in jpeg.splits["train"].shards) < sum(shard.bytes for shard in raw.splits["train"].shards)
    pixels = [open_shards(tmp_path / store).splits["test"].pixels(3).astype(int) for store in ("raw", "jpeg")]
    assert np.abs(pixels[0] - pixels[1]).mean() < 4


def test_corrupt_images_are_left_out_and_listed_and_taken_when_they_are_whole(data: Path, tmp_path: Path) -> None:
    prepare(data, whole := tmp_path / "whole")
    out, train = tmp_path / "out", data / "imagenet" / "train"
    paths = [train / SYNSETS[0] / f"{SYNSETS[0]}_3.JPEG", train / SYNSETS[2] / f"{SYNSETS[2]}_0.JPEG"]
    good = [path.read_bytes() for path in paths]
    paths[0].write_bytes(good[0][:200])
    paths[1].write_bytes(b"no image")
    index, _ = prepare(data, out)
    assert index.splits["train"].count == 10
    assert [name for name, _ in index.splits["train"].corrupt] == [f"{path.parent.name}/{path.name}" for path in paths]
    lines = (out / "corrupt.txt").read_text().splitlines()
    assert lines[1] == f"train\t{SYNSETS[2]}/{SYNSETS[2]}_0.JPEG\tit is no image of a known kind"
    assert open_shards(out).splits["train"].labels.tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert prepare(data, out)[1] == []
    for path, contents in zip(paths, good, strict=True):
        path.write_bytes(contents)
    assert prepare(data, out)[1] == ["train-00000.bin", "train-00001.bin"]
    assert prepared_bytes(out) == prepared_bytes(whole)


def test_a_shard_without_any_image_has_no_file(data: Path, tmp_path: Path) -> None:
    for path in (data / "imagenet" / "train" / SYNSETS[0]).iterdir():
        path.write_bytes(b"")
    next((data / "imagenet" / "train" / SYNSETS[1]).glob("*_0.JPEG")).write_bytes(b"")
    index, _ = prepare(data, tmp_path / "out")
    assert [shard.file for shard in index.splits["train"].shards] == ["train-00001.bin", "train-00002.bin"]
    assert not (tmp_path / "out" / "train-00000.bin").exists()
    assert len(open_shards(tmp_path / "out").splits["train"]) == 7
    assert prepare(data, tmp_path / "out")[1] == []
    for path in (data / "imagenet").rglob("*.JPEG"):
        path.write_bytes(b"")
    with pytest.raises(
        PreparationFailed, match=r"none of the 12 images of 'train' can be read \(n01440764/n01440764_0.JPEG it is no image"
    ):
        prepare(data, tmp_path / "nothing")


def test_a_folder_or_pipe_in_the_place_of_an_image_is_corrupt_and_a_missing_image_an_error(data: Path, tmp_path: Path) -> None:
    paths = [data / "imagenet" / "val" / SYNSETS[0] / f"ILSVRC2012_val_0{index}.JPEG" for index in range(2)]
    for path, make in zip(paths, (Path.mkdir, os.mkfifo), strict=True):
        path.unlink()
        make(path)
    num_open = len(os.listdir("/dev/fd"))
    index, _ = prepare(data, tmp_path / "out")
    assert len(os.listdir("/dev/fd")) <= num_open
    assert index.splits["test"].corrupt == tuple((f"{SYNSETS[0]}/{path.name}", "it is no regular file") for path in paths)
    job = ShardJob(tmp_path / "out", "x-00000.bin", SETTINGS, data, ("gone.jpg",), (0,))
    with pytest.raises(FileNotFoundError):
        make_shards([job], 1, lambda count: None)
    assert not list((tmp_path / "out").glob("x-*"))


def test_strange_names_are_no_obstacle(data: Path, tmp_path: Path) -> None:
    folder = data / "imagenet-r" / SYNSETS[1]
    os.rename(folder / "art_0.jpg", os.fsencode(folder) + b"/a\nb\xff.jpg")
    prepare(data, tmp_path / "out")
    assert (tmp_path / "out" / "imagenet-r.txt").read_text().splitlines()[0] == f"{SYNSETS[1]}/a\\nb\\xff.jpg"


def test_a_second_preparation_is_refused(data: Path, tmp_path: Path) -> None:
    with locked(tmp_path / "out"), pytest.raises(ValueError, match="out is being prepared by another process; wait for it to end, or"):
        prepare(data, tmp_path / "out")


def test_a_folder_with_something_else_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="data holds something else than prepared images; name an empty folder"):
        prepare(data, data)
    assert not list(data.glob("*.lock"))


def test_a_full_disk_in_the_middle_keeps_what_is_done(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    sync, calls = os.fsync, []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 6:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left") as caught:
            prepare(data, out)
    assert "train-00002.bin" in caught.value.filename
    assert not list(out.rglob("*.part"))
    assert prepare(data, out)[1][0] == "train-00002.bin"
    prepare(data, tmp_path / "whole")
    assert prepared_bytes(out) == prepared_bytes(tmp_path / "whole")


def test_errors_of_workers_are_those_of_the_preparation(tmp_path: Path, data: Path) -> None:
    (tmp_path / "journal").mkdir()
    missing = [ShardJob(tmp_path, f"x-{number}.bin", SETTINGS, data, ("gone.jpg",), (0,)) for number in range(3)]
    with pytest.raises(FileNotFoundError) as caught:
        make_shards(missing, 2, lambda count: None)
    assert caught.value.filename.endswith("gone.jpg")


def test_a_worker_that_dies_is_replaced_and_one_that_always_dies_is_named(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent closes the ends of pipes and kills workers, as if the system had done it."""
    prepare(data, tmp_path / "whole")
    started = shard_workers.ShardWorker.start
    killed = []

    def start_and_kill(job: ShardJob) -> shard_workers.ShardWorker:
        worker = started(job)
        if job.file == "train-00001.bin" and len(killed) < most:
            os.kill(worker.process.pid or 0, signal.SIGKILL)
            killed.append(job.file)
        return worker

    monkeypatch.setattr(shard_workers.ShardWorker, "start", start_and_kill)
    most = 2
    prepare(data, tmp_path / "out", workers=2)
    assert prepared_bytes(tmp_path / "out") == prepared_bytes(tmp_path / "whole")
    most = 99
    killed.clear()
    with pytest.raises(
        PreparationFailed, match=rf"3 processes died while they prepared train-00001.bin \({SYNSETS[1]}/.* what is done is kept"
    ):
        prepare(data, tmp_path / "never", workers=2)
    assert len(killed) == 3


def test_the_size_on_disk_is_known_beforehand(data: Path, tmp_path: Path) -> None:
    with locked(tmp_path / "out"):
        preparation = Preparation(imagenet_to_prepare(str(data)), SETTINGS, tmp_path / "out")
        preparation.begin()
        jobs = preparation.unfinished()
        guess = preparation.estimate(jobs) * sum(len(job.names) for job in jobs)
    index, _ = prepare(data, tmp_path / "out")
    assert guess == sum(shard.bytes for split in index.splits.values() for shard in split.shards)


def test_shards_of_imagenet_are_few_enough_to_be_mapped_together(monkeypatch: pytest.MonkeyPatch, data: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(preparing, "LEAST_IMAGES", 64)
    preparation = Preparation(imagenet_to_prepare(str(data)), SETTINGS, tmp_path)
    sizes = {"train": 1_281_167, "test": 50_000, "imagenet-v2": 10_000, "imagenet-r": 30_000, "imagenet-sketch": 50_889}
    shards = {split: -(-count // preparing.images_per_shard(split, count)) for split, count in sizes.items()}
    assert shards["train"] == 256
    assert sum(shards.values()) < 600
    assert preparation.plan_of("train").images_per_shard == 64


EVERY_INSTANT = """
import os, signal, sys
from pathlib import Path
import torch
from swamp.tasks import preparing
from swamp.tasks.datasets.shard_writing import ShardWriter
from swamp.tasks.datasets.imagenet import imagenet_to_prepare
from swamp.tasks.preparing import Preparation, PreparationSettings, locked
from swamp.tasks.shard_workers import make_shards

preparing.LEAST_IMAGES = 6
data, place = Path(sys.argv[1]), Path(sys.argv[2])
source = imagenet_to_prepare(str(data))
settings = PreparationSettings("imagenet", 16, "raw", 90, "pil")
left, opened = 0, Path.open

def pass_instant():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def counted(function):
    def call(*arguments, **options):
        if function is opened and "wb" not in arguments:
            return function(*arguments, **options)
        pass_instant()
        found = function(*arguments, **options)
        pass_instant()
        return found
    return call

def prepare(out):
    with locked(out):
        preparation = Preparation(source, settings, out)
        preparation.begin()
        make_shards(preparation.unfinished(), 1, lambda count: None)
        preparation.finish()

def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

prepare(place / "whole")
whole, instant = contents(place / "whole"), 0
while True:
    instant += int(sys.argv[3])
    out = place / str(instant)
    child = os.fork()
    if not child:
        left = instant
        os.fsync, os.replace = counted(os.fsync), counted(os.replace)
        Path.unlink, Path.open = counted(Path.unlink), counted(opened)
        ShardWriter.add = counted(ShardWriter.add)
        prepare(out)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    if status == 0:
        break
    prepare(out)
    assert contents(out) == whole, f"killed at operation {instant}"
print(instant // int(sys.argv[3]) - 1)
"""


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 9])
def test_a_kill_at_any_instant_changes_no_byte(step: int, tmp_path: Path) -> None:
    """Processes are killed (SIGKILL) before and after every, or every ninth, of their operations on files. The next call ends with the
    bytes of one that was not disturbed."""
    data = imagenet_tree(tmp_path / "data", per_class=3, width=20, height=26)
    (tmp_path / "out").mkdir()
    line = [sys.executable, "-W", "ignore", "-c", EVERY_INSTANT, str(data), str(tmp_path / "out"), str(step)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 80 // step  # kills
