from __future__ import annotations

import pytest
import torch

from swamp.core.noise import Noise
from swamp.tasks.datasets.dataset import hold_out
from swamp.tasks.image import Config, ImageTask


def test_parts_are_disjoint_complete_and_a_function_of_the_seed() -> None:
    train, held_out = hold_out(50, 12, seed=1)
    assert sorted(train.tolist() + held_out.tolist()) == list(range(50))
    assert len(held_out) == 12
    assert torch.equal(held_out, hold_out(50, 12, seed=1)[1])
    assert not torch.equal(held_out, hold_out(50, 12, seed=2)[1])
    assert held_out.tolist() == sorted(held_out.tolist())


def test_something_must_be_left() -> None:
    with pytest.raises(ValueError, match="validation = 50 leaves nothing to train on: the training set has 50 examples"):
        hold_out(50, 50, seed=0)


def test_training_never_sees_what_is_held_out() -> None:
    whole, task = ImageTask(Config()), ImageTask(Config(validation=97, pad=0, batch_size=400))
    pictures = {
        split: {image.numpy().tobytes() for image in task.data.splits[split][0]}  # type: ignore[index]
        for split in ("train", "validation", "test")
    }
    assert not pictures["train"] & pictures["validation"]
    assert not pictures["validation"] & pictures["test"]
    assert task.num_examples == 400 == len(task.batch(task.plan(Noise(0), 0, torch.device("cpu")), 0)[1])
    assert torch.equal(task.data.splits["test"][0], whole.data.splits["test"][0])  # type: ignore[arg-type]
    assert "accuracy" in task.evaluate(task.model(), "validation")
    assert (
        len({whole.fingerprint, task.fingerprint, ImageTask(Config(validation=97, pad=0, batch_size=400, validation_seed=1)).fingerprint})
        == 3
    )


def test_without_one_there_is_no_validation_split() -> None:
    task = ImageTask(Config())
    with pytest.raises(ValueError, match=r"unknown split 'validation' of this data set; .*known: test, train"):
        task.evaluate(task.model(), "validation")
