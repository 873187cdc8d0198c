from __future__ import annotations

import pytest
import torch
from torch import nn

from swamp.export.compiled import WholeNetwork
from tests.support.compiling import needs_compiler

pytestmark = [needs_compiler, pytest.mark.usefixtures("compiled_runtime")]


def test_it_stays_in_evaluation_mode() -> None:
    """As the runtime does, with which the model is compared at the first call with inputs of a shape."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(), nn.Flatten(), nn.Linear(288, 4)).eval()
    fast, other = WholeNetwork(model, torch.randn(2, 3, 8, 8)), torch.randn(5, 3, 8, 8)
    with torch.no_grad():
        expected = model(other)
        torch.testing.assert_close(fast.train()(other), expected)
        torch.testing.assert_close(fast.eval()(other), expected)
    assert all(fast.is_right.values())
