"""A residual block on its own kernels is no farther from float64 than its layers in bf16 are, and its bits are the same each time."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from swamp.tasks.models import layers, residual
from swamp.tasks.models.residual import Block, ResidualNet
from tests.support.triton_device import DEVICE, DTYPE, INTERPRETED, on_triton

pytestmark = on_triton
COUNT = 3 if INTERPRETED else 48

shapes = pytest.mark.parametrize(
    ("inputs", "outputs", "stride", "size"),
    [(16, 32, 1, 16), (32, 32, 1, 32), (32, 64, 2, 32), (64, 128, 2, 16), (128, 128, 1, 8), (16, 16, 1, 7)],
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


def test_a_network_of_blocks_and_norms_agrees_with_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of a block serve the next one, and those of the last block the last norm; a block that does not fit stands between."""
    monkeypatch.setattr(residual, "convolutions_fit", lambda x, layers: all(48 not in layer.weight.shape for layer in layers))
    monkeypatch.setattr(layers, "norm_relu_fits", lambda x: x.shape[1] != 48)
    errors = torch.zeros(2, dtype=torch.float64)  # of the kernels and of the layers: squares, relative to the exact values
    for seed in range(1 if INTERPRETED else 10):
        torch.manual_seed(seed)
        net = ResidualNet(3, 10, 16, [16, 48, 32], 2).to(DEVICE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        double, layered = copy.deepcopy(net).double(), copy.deepcopy(net)
        for module in (*net.blocks, net.bn, *(norm for block in net.blocks for norm in (block.bn1, block.bn2))):
            module.fused = True
        x = laid_out(torch.randn(4, 3, 12, 12, device=DEVICE))
        outcomes = []
        for model in (double, layered, net):
            with torch.autocast(DEVICE, torch.bfloat16, enabled=not INTERPRETED and model is not double):
                out = model(x.double() if model is double else x)
            gradients = torch.autograd.grad(out.double().square().sum(), list(model.parameters()))
            outcomes.append([t.detach().double() for t in (out, *gradients, *model.buffers())])
        for exact, usual, found in zip(*outcomes, strict=True):
            error, usual_error = ((t - exact).norm() / exact.norm().clamp_min(1e-9) for t in (found, usual))
            # After so many layers, rounding to bf16 is nearly random: a single tensor of the kernels was up to four times as far from
            # the exact values as that of the layers, or as much nearer, and the mean ratio of 40 networks was 0.97.
            assert error <= 6 * usual_error + 1e-5
            errors += torch.stack([error, usual_error]).square().cpu()
    assert errors[0] <= 1.3 * errors[1] + 1e-10


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
