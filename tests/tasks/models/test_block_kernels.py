"""A residual block on its own kernels is no farther from float64 than its layers in bf16 are, and its bits are the same each time."""

from __future__ import annotations

import copy
import os

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from swamp.tasks.models.residual import Block

INTERPRETED = bool(os.environ.get("TRITON_INTERPRET"))
if not INTERPRETED:
    pytestmark = pytest.mark.gpu
    DEVICE, DTYPE, COUNT = "cuda", torch.bfloat16, 48
else:
    pytest.importorskip("triton")
    DEVICE, DTYPE, COUNT = "cpu", torch.float32, 3

shapes = pytest.mark.parametrize(
    ("inputs", "outputs", "stride", "size"), [(16, 32, 1, 16), (32, 32, 1, 32), (32, 64, 2, 32), (64, 128, 2, 16), (128, 128, 1, 8), (16, 16, 1, 7)]
)


def laid_out(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def outcome(block: Block, x: Tensor, factor: Tensor, fused: bool) -> dict[str, Tensor]:
    """Output, moments of the output, buffers and all gradients."""
    from swamp.tasks.models.block_kernels import residual_block
    from swamp.tasks.models.norm_relu_kernels import batch_norm

    x = x.clone().requires_grad_()
    if fused:
        out, moments = residual_block(block, x, None, None)
        layer = torch.nn.BatchNorm2d(out.shape[1]).to(DEVICE)
        norm = batch_norm(layer, moments, out[:, 0].numel(), layer.weight.detach(), layer.bias.detach())
        assert torch.allclose(norm.mean.double(), out.double().mean((0, 2, 3)), atol=1e-5)
    else:
        s, branch, _ = block(x, None, None)
        out = s + branch
    names, parameters = zip(*block.named_parameters(), strict=True)
    gradients = torch.autograd.grad(out, [x, *parameters], factor.to(out.dtype))
    return {"out": out.detach(), **dict(block.named_buffers()), **dict(zip(["x", *names], gradients, strict=True))}


@shapes
def test_a_block_is_as_near_to_float64_as_its_layers_are(inputs: int, outputs: int, stride: int, size: int) -> None:
    torch.manual_seed(inputs + size)
    block = Block(inputs, outputs, stride).to(DEVICE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for layer in (block.bn1, block.bn2):
        torch.nn.init.uniform_(layer.weight, 0.5, 1.5)
        torch.nn.init.uniform_(layer.bias, -0.5, 0.5)
    for layer in block.convolutions():
        layer.to(DTYPE)
    x = laid_out((torch.randn(COUNT, inputs, size, size, device=DEVICE) + 1).to(DTYPE))
    height = (size - 1) // stride + 1
    factor = laid_out(torch.randn(COUNT, outputs, height, height, device=DEVICE).to(DTYPE))
    double, plain, again = copy.deepcopy(block).double(), copy.deepcopy(block), copy.deepcopy(block)
    exact = outcome(double, x.double(), factor, fused=False)
    usual = outcome(plain, x, factor, fused=False)
    found = outcome(block, x, factor, fused=True)
    for name, wanted in exact.items():
        scale = wanted.double().norm()
        error, usual_error = ((t[name].double() - wanted.double()).norm() / scale for t in (found, usual))
        assert error <= 1.25 * usual_error + 2e-6, (name, float(error), float(usual_error))
    for name, value in outcome(again, x, factor, fused=True).items():
        assert torch.equal(value, found[name]), name


def test_weights_in_float32_are_rounded_as_autocast_does() -> None:
    from swamp.tasks.models.block_kernels import residual_block

    torch.manual_seed(0)
    block = Block(16, 32, 1).to(DEVICE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    copies = copy.deepcopy(block)
    for layer in copies.convolutions():
        layer.to(DTYPE)
    x = laid_out(torch.randn(2, 16, 8, 8, device=DEVICE).to(DTYPE))
    (a, _), (b, _) = residual_block(block, x, None, None), residual_block(copies, x, None, None)
    assert torch.equal(a, b)
    by_a, by_b = torch.autograd.grad(a.sum(), block.conv1.weight)[0], torch.autograd.grad(b.sum(), copies.conv1.weight)[0]
    assert by_a.dtype == torch.float32
    assert torch.equal(by_a, by_b.float())
    assert F.relu(by_a).any()
