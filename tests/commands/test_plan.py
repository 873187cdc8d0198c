"""`swamp plan` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swamp.runs.config import build_config, resolve
from swamp.runs.plan import make_plan
from swamp.runs.workload import given_paces, planned_task, work_of
from tests.support.cli import call
from tests.support.prepared import NUM_TRAIN, write_prepared


def test_imagenet_is_planned_without_its_images(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--gpus", "1,8", "--hours", "24", "--rate", "6845", "--image-kilobytes", "262"]
    status, out, remarks = call(capsys, "plan", "imagenet-resnet50", *options)
    assert status == 0
    assert "its published 1,281,167 training images" in remarks
    eight = out.split("8 GPUs on 1 host, predicted")[1]
    assert "together 2,490 epochs of 626 steps" in eight
    rows = [line.split() for line in eight.splitlines() if line.strip()[:1].isdigit()]
    assert [row[:2] for row in rows[:4]] == [["1", "8"], ["2", "4"], ["4", "2"], ["8", "1"]]
    assert "fastest, in time" in eight


def test_epochs_of_small_images_count_as_parts(capsys: pytest.CaptureFixture[str]) -> None:
    """Six epochs at 128 pixels, seven at 192 and five at 224, and a ticket of nine epochs that ends at 192."""
    status, out, _ = call(capsys, "plan", "imagenet-resnet50-fast", "--gpus", "1", "--rate", "6845", "--image-kilobytes", "262", "--json")
    assert status == 0
    small, middle = (side**2 / 224**2 for side in (128, 192))
    rounds = json.loads(out)["work"]["rounds"]
    assert rounds[0] == [pytest.approx(6 * small + 3 * middle, rel=1e-3)]
    assert rounds[2] == [pytest.approx(6 * small + 7 * middle + 5, rel=1e-3)] * 8


def test_what_is_remarked_on_before_a_run_is_remarked_on_in_its_plan(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--tasks.image.sizes", "0:128,18:224")
    status, _, remarks = call(capsys, "plan", "imagenet-resnet50-fast", *sizes, "--gpus", "1", "--rate", "6845")
    assert status == 0
    assert "names sizes from epoch 18 on, but no training has more than 18 epochs" in remarks


def test_prepared_images_say_what_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_prepared(tmp_path / "prepared")
    small = ("--tasks.image.model=wrn10-1", "--tasks.image.crop_size=16", "--tasks.image.batch_size=8")
    status, out, said = call(capsys, "plan", "imagenet-resnet50", *small, "--data", folder, "--gpus", "2", "--rate", "100", "--json")
    assert status == 0, said
    total = sum(path.stat().st_size for path in folder.glob("train-*.bin"))
    assert json.loads(out)["work"]["example_bytes"] == round(total / NUM_TRAIN)


def test_json_has_what_the_table_has(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "plan", "digits", "--gpus", "4", "--rate", "1000", "--json")
    found = json.loads(out)
    assert [one["data"] for one in found["gpus"]["4"]] == [1, 2, 4]
    assert found["work"]["batch_size"] * found["work"]["steps_per_epoch"] >= 512


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["imagenet-resnet50"], "without the data no step can be timed here: give --rate"),
        (["digits", "--gpus", "0"], "--gpus 0: expected different positive whole numbers"),
        (["digits", "--rate", "-1"], "--rate -1.0: expected examples a second, a positive number"),
        (["digits", "--network", "0"], "--network 0.0: expected a positive number"),
        (["digits", "--shared-rate", "5"], "--shared-rate 5.0: give --rate with it"),
        (["digits", "--gpus-per-host", "2.5"], "--gpus-per-host"),
        (
            ["imagenet-resnet50-fast", "--tasks.image.sizes", "0:8,4:16,0:32", "--rate", "9"],
            "--tasks.image.sizes 0:8,4:16,0:32 gives 0 twice",
        ),
        (["folder-resnet50", "--rate", "9"], "images are read from a folder that you name with --data DIR"),
        (["digits", "--latency", "-1"], "--latency -1.0: expected a number that is not negative"),
    ],
)
def test_what_cannot_be_planned_gets_one_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, remarks = call(capsys, "plan", *arguments)
    assert status == 2
    assert message in remarks


def test_data_that_are_damaged_are_not_planned_as_absent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the message says does not matter: here it has the words of the one for absent data."""
    (tmp_path / "was not found" / "train").mkdir(parents=True)
    status, _, remarks = call(capsys, "plan", "imagenet-resnet50", "--data", tmp_path / "was not found", "--rate", "9")
    assert status == 2
    assert "holds no folder named by a synset" in remarks


def test_work_is_that_of_the_plan() -> None:
    config = resolve(build_config("digits", {"pruning.cycles": 2, "methods.swamp.particles": 3, "cycle.epochs": 4, "ticket.epochs": 1}))
    task, is_here = planned_task(config, print)
    work = work_of(task, make_plan(config, task), 7)
    assert is_here
    assert [list(epochs) for epochs in work.rounds] == [[1.0], [4.0] * 3, [4.0] * 3, [4.0] * 3]
    assert work.averages
    assert work.num_parameters == sum(parameter.numel() for parameter in task.model().parameters())
    assert given_paces(100.0, None).of(1).step(50) == given_paces(100.0, None).of(2).step(50) == pytest.approx(0.5)
