"""Samples of training data that scores are computed on."""

from __future__ import annotations

import torch
from torch import nn

import swamp
from swamp.core.noise import Noise
from swamp.tasks.sampling import balanced_sample


def test_labels_that_do_not_count_are_no_class() -> None:
    labels = torch.tensor([0, 1, -100, 2]).repeat(8)
    data = torch.randn(32, 3, generator=torch.Generator().manual_seed(0)), labels
    task = swamp.CustomTask(lambda: nn.Linear(3, 3), data, data, batch_size=8)
    assert task.num_classes == 3
    (sample,) = balanced_sample(task, Noise(0), 2, torch.device("cpu"))
    assert sorted(sample[1].tolist()) == [0, 0, 1, 1, 2, 2]
