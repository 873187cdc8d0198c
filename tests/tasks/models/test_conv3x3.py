"""The convolution's kernel against float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from swamp.tasks.models.layers import Conv3x3, conv3x3_fits


def test_the_plain_path_is_a_convolution() -> None:
    layer, x = Conv3x3(3, 16), torch.randn(2, 3, 5, 7)
    assert torch.equal(layer(x), F.conv2d(x, layer.weight, padding=1))


@pytest.mark.gpu
@pytest.mark.parametrize(("inputs", "outputs"), [(16, 32), (32, 32), (64, 64), (64, 128), (128, 128), (128, 16)])
@pytest.mark.parametrize("shape", [(128, 32, 32), (37, 7, 5), (80, 16, 16), (1, 8, 8), (1, 1, 1)])
def test_kernels_agree_with_float64(inputs: int, outputs: int, shape: tuple[int, int, int]) -> None:
    count, height, width = shape
    torch.manual_seed(inputs + outputs + count)
    layer = Conv3x3(inputs, outputs).cuda().to(torch.bfloat16).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(count, inputs, height, width, device="cuda").to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
    factor = torch.randn(count, outputs, height, width, device="cuda").to(torch.bfloat16)
    layer.fused = True
    x.requires_grad_()
    assert conv3x3_fits(x, layer.weight)
    y = layer(x)
    found = [y.detach(), *torch.autograd.grad(y, [x, layer.weight], factor)]
    double_x, double_weight = (t.detach().double().requires_grad_() for t in (x, layer.weight))
    wanted_y = F.conv2d(double_x, double_weight, padding=1)
    wanted = [wanted_y.detach(), *torch.autograd.grad(wanted_y, [double_x, double_weight], factor.double())]
    for a, b in zip(found, wanted, strict=True):
        assert (a.double() - b).norm() <= 5e-3 * b.norm()
