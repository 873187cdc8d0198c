"""Sentences about trainings and numbers that cannot mean much: before a training, in the row, and below every table of the row."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import swamp
from swamp.core.rules import RigL
from swamp.runs.config import Config, build_config
from swamp.runs.opening import RunRequest, prepare
from swamp.runs.remarks import blind_accuracy
from swamp.store.records import read_rows
from swamp.tasks.metrics import temperature_is_at_its_bound
from tests.support.blobs import Blobs
from tests.support.cli import call
from tests.support.prepared import write_prepared

Make = Callable[..., Config]
QUIET: dict[str, Any] = {"quiet": True, "engine": "sequential", "ticket": {"epochs": 0}, "pruning": {"cycles": 1}}


def test_rigl_that_never_acts_says_so_before_training_and_below_its_tables(
    quick: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two cycles of two epochs of two steps: the mask may change in the first 6 of 8 steps."""
    idle = "RigL never changes its mask, so that this is random pruning: methods.rigl.interval = 6 steps"
    (run,) = prepare([RunRequest(quick(method="rigl", methods__rigl__interval=6), tmp_path / "run")])
    assert [remark.startswith(idle) for remark in run.remarks] == [True]
    assert not prepare([RunRequest(quick(method="rigl", methods__rigl__interval=5), tmp_path / "run")])[0].remarks
    list(swamp.runs.runner.run_rows(run))
    assert all(row.notes and row.notes[0].startswith(idle) for row in read_rows(tmp_path / "run"))
    for command in ("show", "compare"):
        status, out, _ = call(capsys, command, tmp_path / "run")
        assert (status, out.count(idle)) == (0, 1)
    assert call(capsys, "report", tmp_path / "run", "--out", tmp_path / "page.html")[0] == 0
    assert idle in (tmp_path / "page.html").read_text()


def test_sizes_that_no_training_reaches_are_named(tmp_path: Path) -> None:
    folder = write_prepared(tmp_path / "prepared")
    small = {"model": "wrn10-1", "crop_size": 16, "batch_size": 8}
    settings: dict[str, Any] = {"data": folder, "tasks.image": small, "cycle.epochs": 4, "ticket.epochs": 2, "cycle.warmup": 1}

    def remarks(sizes: dict[str, int]) -> list[str]:
        config = build_config("imagenet-resnet50-fast", {**settings, "tasks.image.sizes": sizes})
        (run,) = prepare([RunRequest(config, tmp_path / "run")])
        return [remark for remark in run.remarks if "sizes" in remark]

    assert not remarks({"0": 8, "3": 16})
    assert remarks({"0": 8, "4": 12, "30": 16}) == [
        "tasks.image.sizes names sizes from epoch 4 on, but no training has more than 4 epochs: they are never used"
    ]


def test_rigl_acts_first_after_an_interval() -> None:
    rule = RigL(interval=12, fraction=0.3, until=0.75)
    assert rule.never_acts(16)
    assert not rule.never_acts(17)


@pytest.mark.parametrize(
    ("labels", "expected"), [([0] * 6 + [1] * 4, 0.5 + 2 * math.sqrt(0.25 / 10)), ([0] * 9 + [1], 0.9), ([-1] * 9 + [1], 0.9)]
)
def test_what_a_blind_classifier_reaches(labels: list[int], expected: float) -> None:
    """The most frequent class, or a coin two standard errors above its mean."""
    task: Any = Blobs()
    task.all_labels = lambda split: torch.tensor(labels)
    assert blind_accuracy(task) == pytest.approx(expected)
    task.num_examples = 2  # of which a coin may well name both
    assert blind_accuracy(task) is None
    task.num_classes = None
    assert blind_accuracy(task) is None


def test_labels_that_do_not_count_are_no_class_to_name_blindly() -> None:
    x, labels = torch.randn(200, 4), torch.arange(200) % 2
    labels[20:] = -100
    task = swamp.CustomTask(nn.Linear(4, 2), (x, torch.arange(200) % 2), (x, labels))
    assert blind_accuracy(task) == pytest.approx(0.5 + 2 * math.sqrt(0.25 / 200))


def test_labels_of_one_class_beside_a_loss_of_ones_own_say_nothing_of_an_accuracy(tmp_path: Path) -> None:
    """Autoencoders and anomaly detectors are trained on such data."""
    data = torch.randn(20, 4), torch.zeros(20, dtype=torch.long)
    found = swamp.prune(
        nn.Linear(4, 4), data, data, loss=lambda model, batch: (model(batch[0]) - batch[0]).square().mean(), out=tmp_path / "one", **QUIET
    )
    assert found.rows[0].metrics.keys() == {"loss"}


def test_a_dense_network_at_the_majority_class_is_named_and_a_trained_one_is_not(tmp_path: Path) -> None:
    """Nine of ten labels are 0, and a rate of next to nothing leaves the network with the bias that it starts with."""
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        model[2].bias.copy_(torch.tensor([9.0, -9.0]))  # type: ignore[union-attr, operator]
    rare = x, (torch.arange(40) % 10 == 9).long()
    found = swamp.prune(model, rare, rare, out=tmp_path / "blind", cycle={"epochs": 1, "learning_rate": 1e-9}, **QUIET)
    blind = [note for note in found.rows[0].notes or () if "the dense network's accuracy, 90.00 %, is no better" in note]
    assert len(blind) == 1
    assert not any("dense" in note for note in found.rows[1].notes or ())  # It is said once.
    easy = x, (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    found = swamp.prune(model, easy, easy, out=tmp_path / "good", cycle={"epochs": 40}, **QUIET)
    assert not any("dense" in note for note in found.rows[0].notes or ())


@pytest.mark.parametrize("metric", [None, lambda outputs, targets: {"foreground": 2.0 * (outputs.argmax(1) * targets).double().mean()}])
def test_positions_and_metrics_of_ones_own_are_compared_with_one_answer_for_all(metric: Any, tmp_path: Path) -> None:
    """A segmentation whose background is nine tenths, by its accuracy and by a metric that counts the rest."""
    images = torch.randn(20, 1, 4, 5, generator=torch.Generator().manual_seed(0))
    labels = (torch.arange(20) >= 18).long().reshape(4, 5).expand(20, 4, 5)
    model = nn.Conv2d(1, 2, 3, padding=1)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([9.0, -9.0]))  # type: ignore[union-attr]
    data = images, labels
    found = swamp.prune(model, data, data, metric=metric, out=tmp_path / "run", cycle={"epochs": 1, "learning_rate": 1e-9}, **QUIET)
    compared = (
        "foreground 0.0000 is no better than that of one answer for all examples (0.0000)" if metric else "accuracy 90.00 % is no better"
    )
    assert [f"the dense network's {compared}" in note for note in found.rows[0].notes or ()] == [True]
    assert not found.rows[1].notes


def test_channels_that_an_n_m_pattern_keeps_are_named_with_the_sparsity_that_is_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 16×10 weights, 16×2 make no whole group: 16×(4+2) of 160 stay, and all groups of the other layer leave half."""
    x = torch.randn(40, 10, generator=torch.Generator().manual_seed(0))
    data = x, (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))
    options = {**QUIET, "cycle": {"epochs": 1}, "pruning": {"pattern": "2:4"}}
    found = swamp.prune(model, data, data, sparsity=0.5, out=tmp_path / "run", **options)
    assert found.rows[-1].num_survivors == 96 + 16
    assert capsys.readouterr().err.count("reaches 41.67 % sparsity, not 50.00 %") == 1
    swamp.prune(model, data, data, sparsity=0.4, out=tmp_path / "other", **options)
    assert "sparsity, not" not in capsys.readouterr().err


def test_a_calibrated_nll_whose_temperature_is_at_its_bound_is_named() -> None:
    labels = torch.arange(40) % 2
    right = torch.nn.functional.one_hot(labels, 2).float()
    noisy = torch.where(torch.arange(40) % 8 == 0, labels, 1 - labels)
    assert temperature_is_at_its_bound(right, labels)  # no error: the smaller the temperature, the better
    assert temperature_is_at_its_bound(right, noisy)  # mostly wrong: the larger, the better
    some = torch.where(torch.rand(40, generator=torch.Generator().manual_seed(0)) < 0.25, 1 - labels, labels)
    assert not temperature_is_at_its_bound(right, some)
