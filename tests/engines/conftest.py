"""Runs the graphed engine's bookkeeping without CUDA: a stand-in for GraphStream calls steps instead of capturing them."""

from __future__ import annotations

import pytest
import torch

from swamp.engines import graphed, particle, recorded
from tests.support.trainings import CallingLane


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if request.param == "cpu":
        monkeypatch.setattr(particle, "GraphStream", CallingLane)
        monkeypatch.setattr(recorded, "GraphStream", CallingLane)
        monkeypatch.setattr(graphed, "devices", ("cpu",))
    return torch.device(request.param)
