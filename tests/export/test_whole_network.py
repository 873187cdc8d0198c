from __future__ import annotations

import pytest
import torch
from torch import nn

from swamp.export.compiled import WholeNetwork, _is_near
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


@pytest.mark.parametrize("special", [torch.inf, -torch.inf, torch.nan])
def test_outputs_are_compared_beside_those_that_are_not_finite(special: float) -> None:
    expected = torch.tensor([1.0, special])
    assert _is_near(torch.tensor([1.000001, special]), expected)
    assert not _is_near(torch.tensor([2.0, special]), expected)
    assert not _is_near(torch.tensor([1.0, 3.0]), expected)
