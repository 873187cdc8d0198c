"""Runs the graphed engine's bookkeeping without CUDA: a stand-in for GraphStream calls steps instead of capturing them."""

from __future__ import annotations

import pytest
import torch

from tests.support.trainings import graphed_on_cpu


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if request.param == "cpu":
        graphed_on_cpu(monkeypatch)
    return torch.device(request.param)
