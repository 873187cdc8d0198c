from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from swamp.tasks.datasets.shards import open_shards
from swamp.tasks.preparing import locked
from tests.support.cli import call
from tests.support.made_up_datasets import gradient_jpeg, write
from tests.support.made_up_trees import SYNSETS, imagenet_tree, prepared_bytes
from tests.support.processes import start

QUICK = ("--size", 32, "--workers", 1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return imagenet_tree(tmp_path / "data")


def test_it_says_what_it_takes_and_what_became_of_it(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    status, said, errors = call(capsys, "prepare", "imagenet", "--data", data, "--out", out, *QUICK)
    assert status == 0
    lines = said.splitlines()
    assert lines[0] == "train 12, test 6, imagenet-r 2; 20 are to be prepared"
    assert lines[1].startswith("shorter side 32, raw pixels, decoder ")
    assert lines[2].startswith("disk: about 0.0 GB of ")
    assert "kB an image" in lines[3]
    assert lines[-1] == f"{out} is prepared: 0.00 GB; train with --data {out}"
    assert "'train' has 3 classes and 12 images; published are 1,000 and 1,281,167" in errors
    assert "ImageNet-V2 (matched frequency) was not found" in errors
    assert len(open_shards(out).splits["train"]) == 12
    before = prepared_bytes(out)
    status, said, _ = call(capsys, "prepare", "imagenet", "--data", data, "--out", out, "--workers", 1)  # with the size of before
    assert (status, said) == (0, f"{out} is prepared already: 0.00 GB; train with --data {out}\n")
    assert prepared_bytes(out) == before
    status, said, errors = call(capsys, "prepare", "imagenet", "--data", data, "--out", out, "--quiet")
    assert (status, said) == (0, "")


def test_without_a_name_it_lists_what_can_be_prepared(capsys: pytest.CaptureFixture[str]) -> None:
    status, said, _ = call(capsys, "prepare")
    assert status == 0
    assert [line.split()[0] for line in said.splitlines()[2:] if line.strip()][-3:] == ["folder", "imagenet", "tiny-imagenet"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["imagenett", "--out", "o"], "'imagenett' cannot be prepared; did you mean 'imagenet'?"),
        (["imagenet-v2", "--out", "o"], "imagenet-v2 is a test set for networks trained on imagenet: `swamp prepare imagenet` prepares it"),
        (["imagenet"], "name the folder for the prepared images: --out DIR"),
        (["imagenet", "--out", "o", "--size", "0"], "--size 0: expected a whole number from 1 to 65,535"),
        (["imagenet", "--out", "o", "--quality", "101"], "--quality 101: expected a whole number from 1 to 100"),
        (["imagenet", "--out", "o", "--store", "jpg"], "--store jpg: did you mean 'jpeg'? Known: jpeg, raw"),
        (["imagenet", "--out", "o", "--size", "1.5"], "Invalid value for --size: 1.5: expected a whole number"),
        (["folder", "--out", "o", "--hold-out-seed", "3"], "--hold-out-seed 3: no image is held out; give --hold-out with it"),
        (["folder", "--out", "o", "--hold-out", "nan"], "--hold-out nan: expected a share below 1"),
        (["folder", "--out", "o", "--hold-out", "inf"], "--hold-out inf: expected a share below 1"),
        (["imagenet", "--out", "o", "--decoder", "gif"], "unknown decoder 'gif'"),
        (["imagenet", "--out", "o", "--hold-out", "0.1"], "--hold-out is for `swamp prepare folder`: imagenet has test images"),
        (["folder", "--out", "o", "--hold-out", "1.5"], "--hold-out 1.5: expected a share below 1, or a whole number of images"),
        (["imagenet", "--out", "o", "--data", "nowhere"], "ImageNet (ILSVRC 2012) was not found: nowhere is no folder"),
        (["folder", "--out", "o", "--data", "nowhere"], "nowhere is no folder; DIR should contain train/CLASS/*.jpg"),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, said, errors = call(capsys, "prepare", *arguments)
    assert (status, said) == (2, "")
    assert errors.startswith(f"swamp: {sentence}")
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_quality_without_jpeg_files_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, errors = call(capsys, "prepare", "imagenet", "--data", data, "--out", tmp_path / "out", "--quality", 80)
    assert (status, errors) == (2, "swamp: --quality is for JPEG files: give it with --store jpeg\n")
    assert not (tmp_path / "out").exists()


def test_corrupt_images_are_named_and_the_status_says_so(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = data / "imagenet" / "train" / SYNSETS[0]
    for index in range(4):
        (folder / f"{SYNSETS[0]}_{index}.JPEG").write_bytes(b"x" * index)
    out = tmp_path / "out"
    for _ in range(2):  # also when it is called again
        status, _, errors = call(capsys, "prepare", "imagenet", "--data", data, "--out", out, *QUICK)
        assert status == 1
        last = errors.splitlines()[-1]
        assert last.startswith(f"swamp: 4 images could not be read and are left out, as {out}/corrupt.txt says: train: {SYNSETS[0]}/")
        assert last.endswith("; …; if they are replaced, run again")
    assert len((out / "corrupt.txt").read_text().splitlines()) == 4
    assert len(open_shards(out).splits["train"]) == 8


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("train/n09999999/n09999999_0.JPEG", "val/n09999999 holds no images"),  # a class too few in val
        ("val/n09999999/a.JPEG", "val/n09999999/a.JPEG is in a class that the training set lacks, 'n09999999'; DIR should contain"),
        ("val/dogs/a.JPEG", "val/dogs/a.JPEG is in a class that the training set lacks, 'dogs'"),
        ("train/stray.JPEG", "train/stray.JPEG lies in no folder of a class, so that its label is not known"),
        (
            f"train/{SYNSETS[0]}/{SYNSETS[1]}_9.JPEG",
            f"is named as an image of {SYNSETS[1]} and lies in the folder of {SYNSETS[0]}; move it",
        ),
    ],
)
def test_images_of_wrong_classes_get_one_sentence(
    place: str, sentence: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(data / "imagenet" / place, gradient_jpeg(20, 20))
    status, _, errors = call(capsys, "prepare", "imagenet", "--data", data, "--out", tmp_path / "out", *QUICK)
    assert status == 2
    assert sentence in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_second_preparation_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(tmp_path / "out"):
        status, _, errors = call(capsys, "prepare", "imagenet", "--data", data, "--out", tmp_path / "out", *QUICK)
    assert status == 2
    assert "is being prepared by another process" in errors


def test_too_little_space_is_said_before_anything_is_made(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("swamp.preparation.shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    status, said, errors = call(capsys, "prepare", "imagenet", "--data", data, "--out", tmp_path / "out", *QUICK)
    assert (status, said) == (2, "")
    assert "the images take about 0.0 GB, and" in errors
    assert "--store jpeg takes a fifth or less" in errors
    assert not list((tmp_path / "out").glob("*.bin"))
    monkeypatch.undo()  # As nothing was made, the advice can be followed in the same folder.
    assert call(capsys, "prepare", "imagenet", "--data", data, "--out", tmp_path / "out", *QUICK, "--store", "jpeg")[0] == 0
    assert open_shards(tmp_path / "out").settings["store"] == "jpeg"


def test_a_full_disk_in_the_middle_is_one_sentence_and_it_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No file may have more than 400 kB: the first shard fits, of small images, and the last does not."""
    data, out = tmp_path / "data", tmp_path / "out"
    for split, count in (("train", 70), ("test", 1)):
        for index in range(count):
            write(data / split / "cat" / f"{index:02d}.jpg", gradient_jpeg(*((20, 20) if index < 64 else (200, 200)), index))
    line = ["prepare", "folder", "--data", str(data), "--out", str(out), "--workers", "1"]
    code = "import signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from swamp.cli import main; main(sys.argv[1:])"
    limit = (400_000, 400_000)
    done = subprocess.run(
        [sys.executable, "-c", code, *line],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"swamp: no space left to write {out}/train-00001.bin; what was stored is sound: free some space and run again\n"
    )
    assert (out / "train-00000.bin").exists()
    assert not list(out.rglob("*.part"))
    assert call(capsys, *line)[0] == 0
    assert len(open_shards(out).splits["train"]) == 70


def test_an_error_leaves_no_part_of_a_file_that_another_worker_wrote(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shards of ImageNet have a gigabyte, and every worker may have one under way when the disk is full."""
    out = tmp_path / "out"

    def full(*_: object) -> None:
        (out / "train-00001.bin.5a.part").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out / "train-00000.bin"))

    monkeypatch.setattr("swamp.preparation.make_shards", full)
    assert call(capsys, "prepare", "imagenet", "--data", data, "--out", out, *QUICK)[0] == 1
    assert not list(out.glob("*.part"))


@pytest.mark.slow
def test_ctrl_c_ends_it_in_silence_and_leaves_no_process(tmp_path: Path) -> None:
    data, out = imagenet_tree(tmp_path / "data", per_class=300, width=300, height=300), tmp_path / "out"
    line = [sys.executable, "-m", "swamp", "prepare", "imagenet", "--data", str(data), "--out", str(out), "--workers", "2", "--quiet"]
    process = start(line)
    while not list(out.glob("*.part")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    said, errors = process.communicate(timeout=60)  # ends when all processes have closed the pipes
    assert (process.returncode, said) == (130, "")
    assert "Traceback" not in errors
    assert not (out / "index.json").exists()
    assert not list(out.glob("*.part"))


def test_a_folder_of_ones_own_with_held_out_test_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("cat", "dog"):
        for index in range(10):
            write(tmp_path / "data" / name / f"{index}.jpg", gradient_jpeg(40, 50, index))
    line = ["prepare", "folder", "--data", tmp_path / "data", "--out", tmp_path / "out", *QUICK]
    status, _, errors = call(capsys, *line)
    assert status == 2
    assert "has neither test/ nor val/" in errors
    assert "`swamp prepare folder --hold-out 0.1` takes a tenth" in errors
    assert call(capsys, *line, "--hold-out", 0.2)[0] == 0
    found = open_shards(tmp_path / "out")
    assert (len(found.splits["train"]), len(found.splits["test"])) == (16, 4)
    assert (found.settings["hold_out"], found.settings["hold_out_seed"]) == (0.2, 0)
    names = [(tmp_path / "out" / f"{split}.txt").read_text().split() for split in ("train", "test")]
    assert not set(names[0]) & set(names[1])
