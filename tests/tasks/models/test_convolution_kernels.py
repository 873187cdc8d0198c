"""The kernels of a residual block against float64: in bf16 on a GPU or, with TRITON_INTERPRET=1, in float32 by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.support.triton_device import DEVICE, DTYPE, INTERPRETED, on_triton

pytestmark = on_triton
TOLERANCE = 1e-5 if INTERPRETED else 5e-3

# inputs, outputs, stride, images, height, width: the shapes of WRN-28-2, and odd ones
SHAPES = [
    (16, 32, 1, 3, 32, 32), (32, 32, 1, 3, 32, 32), (32, 64, 2, 3, 32, 32), (64, 64, 1, 5, 16, 16), (64, 128, 2, 5, 16, 16),
    (128, 128, 1, 5, 8, 8), (16, 16, 1, 7, 7, 5), (16, 32, 2, 7, 7, 5), (128, 16, 1, 3, 1, 1), (32, 64, 2, 1, 1, 1), (16, 16, 2, 2, 2, 3),
]  # fmt: skip
if not INTERPRETED:
    SHAPES += [
        (16, 32, 1, 128, 32, 32), (32, 32, 1, 128, 32, 32), (32, 64, 2, 128, 32, 32),
        (64, 64, 1, 80, 16, 16), (64, 128, 2, 128, 16, 16), (128, 128, 1, 128, 8, 8), (64, 64, 1, 128, 32, 32),
        (16, 16, 1, 4, 12, 12), (32, 32, 1, 48, 7, 7), (64, 64, 1, 13, 9, 9), (128, 128, 1, 10, 7, 7), (64, 128, 2, 8, 28, 28),
    ]  # fmt: skip
shapes = pytest.mark.parametrize(("inputs", "outputs", "stride", "count", "height", "width"), SHAPES)


def laid_out(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def drawn(*shape: int) -> Tensor:
    return laid_out(torch.randn(shape, device=DEVICE).to(DTYPE))


def close(found: Tensor, wanted: Tensor, tolerance: float) -> None:
    assert found.shape == wanted.shape
    assert torch.isfinite(found).all()
    assert (found.double() - wanted).norm() <= tolerance * wanted.norm() + 1e-12


def size_after(size: int, stride: int) -> int:
    return (size - 1) // stride + 1


def norm_of(channels: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mean, bias = torch.randn(2, channels, device=DEVICE)
    scale, weight = torch.rand(2, channels, device=DEVICE) + 0.5
    return mean, scale, weight, bias


@shapes
@pytest.mark.parametrize("what", ["plain", "added", "shortcut"])
def test_a_convolution_and_its_moments(inputs: int, outputs: int, stride: int, count: int, height: int, width: int, what: str) -> None:
    from swamp.tasks.models.convolution_kernels import Shortcut, convolved
    from swamp.tasks.models.norm_relu_kernels import batch_norm

    torch.manual_seed(inputs + outputs + count)
    x, weight = drawn(count, inputs, height, width), drawn(outputs, inputs, 3, 3)
    wanted = F.conv2d(x.double(), weight.double(), stride=stride, padding=1)
    added, shortcut = None, None
    if what == "added":
        added = drawn(*wanted.shape)
        wanted = wanted + added.double()
    if what == "shortcut":  # of twice the size
        shortcut = Shortcut(drawn(count, 32, 2 * wanted.shape[2], 2 * wanted.shape[3] - 1), drawn(outputs, 32, 1, 1), 2)
        wanted = wanted + F.conv2d(shortcut.x.double(), shortcut.weight.double(), stride=2)
    y, moments = convolved(x, weight, stride, added=added, shortcut=shortcut)
    close(y, wanted, TOLERANCE)

    if wanted[:, 0].numel() == 1:
        return
    layer = torch.nn.BatchNorm2d(outputs).to(DEVICE)
    reference = torch.nn.BatchNorm2d(outputs).to(DEVICE).double()
    norm = batch_norm(layer, moments, y[:, 0].numel(), layer.weight.detach(), layer.bias.detach())
    reference(y.double())
    close(norm.mean, y.double().mean((0, 2, 3)), 1e-5)
    close(norm.scale, 1 / (y.double().var((0, 2, 3), correction=0) + layer.eps).sqrt(), 1e-5)
    for name, buffer in reference.named_buffers():
        close(layer.get_buffer(name).double(), buffer.double(), 1e-5)


@shapes
@pytest.mark.parametrize("has_shortcut", [False, True])
def test_a_gradient_by_the_input_and_its_sums(
    inputs: int, outputs: int, stride: int, count: int, height: int, width: int, has_shortcut: bool
) -> None:
    from swamp.tasks.models.convolution_kernels import Products, Shortcut, by_input, finished
    from swamp.tasks.models.norm_relu_kernels import Norm

    torch.manual_seed(inputs + outputs + count)
    weight, s, norm = drawn(outputs, inputs, 3, 3), drawn(count, inputs, height, width), Norm(*norm_of(inputs))
    gradient = drawn(count, outputs, size_after(height, stride), size_after(width, stride))
    h = torch.zeros(s.shape, dtype=torch.float64, device=DEVICE, requires_grad=True)
    out = F.conv2d(h, weight.double(), stride=stride, padding=1)
    wanted = torch.autograd.grad(out, h, gradient.double())[0]
    shortcut = None
    if has_shortcut:
        shortcut = Shortcut(gradient, drawn(outputs, inputs, 1, 1), stride)
        wanted = wanted + torch.autograd.grad(F.conv2d(h, shortcut.weight.double(), stride=stride), h, gradient.double())[0]
    mean, scale, gamma, beta = (t[None, :, None, None] for t in norm)
    normed = (s.float() - mean) * scale
    wanted = wanted * (normed * gamma + beta > 0)
    g, sums = by_input(gradient, weight, stride, s, norm, shortcut=shortcut)
    close(g, wanted, TOLERANCE)
    by_weight, by_bias = finished(sums, norm, Products(weight))
    size = 1e-5 * (g.double().norm() * (1 + normed.double().norm()))  # Sums of both signs may be near zero.
    assert (by_bias.double() - g.double().sum((0, 2, 3))).norm() <= size
    assert (by_weight.double() - (g.double() * normed.double()).sum((0, 2, 3))).norm() <= size


@shapes
@pytest.mark.parametrize("taps", [1, 3])
def test_a_gradient_by_the_weight(inputs: int, outputs: int, stride: int, count: int, height: int, width: int, taps: int) -> None:
    from swamp.tasks.models.convolution_kernels import by_weight, finished
    from swamp.tasks.models.layers import Moments
    from swamp.tasks.models.norm_relu_kernels import Norm

    torch.manual_seed(inputs + outputs + count)
    x, weight = drawn(count, inputs, height, width), drawn(outputs, inputs, taps, taps)
    gradient = drawn(count, outputs, size_after(height, stride), size_after(width, stride))
    double = weight.double().requires_grad_()
    wanted = torch.autograd.grad(F.conv2d(x.double(), double, stride=stride, padding=taps // 2), double, gradient.double())[0]
    products = by_weight(x, gradient, weight, stride)
    partial = torch.arange(2.0 * 16 * 3, device=DEVICE)
    by_gamma, by_beta = finished(Moments(partial, 3, 1), Norm(*norm_of(16)), products)
    close(products.out, wanted, TOLERANCE)
    assert torch.equal(by_beta, partial[:48].view(16, 3).sum(1))
    assert torch.equal(by_gamma, partial[48:].view(16, 3).sum(1))


# inputs, outputs, images, height, width; rows and threads of a tile
HALO_SHAPES = [
    *((32, 32, 3, 32, 32, 8, 128), (16, 32, 3, 32, 32, 8, 256), (32, 16, 5, 16, 16, 8, 64)),
    *((64, 64, 5, 16, 16, 8, 128), (16, 16, 3, 8, 8, 8, 32)),
]


@pytest.mark.skipif(INTERPRETED, reason="CUDA C")
@pytest.mark.parametrize(("inputs", "outputs", "count", "height", "width", "rows", "threads"), HALO_SHAPES)
def test_kernels_that_read_each_pixel_once(
    inputs: int, outputs: int, count: int, height: int, width: int, rows: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They agree with those that they replace: in bits but for the order of sums."""
    from swamp.tasks.models import halo_kernels
    from swamp.tasks.models.convolution_kernels import Products, by_input, by_norm_and_input, finished, normed_convolved
    from swamp.tasks.models.halo_kernels import NormGradient
    from swamp.tasks.models.norm_relu_kernels import Norm, batch_norm

    torch.manual_seed(inputs + outputs + count)
    s, weight, added = drawn(count, inputs, height, width), drawn(outputs, inputs, 3, 3), drawn(count, outputs, height, width)
    norm, layer = Norm(*norm_of(inputs)), torch.nn.BatchNorm2d(outputs).to(DEVICE)
    found = []
    for tile in (None, halo_kernels.HaloTile(rows, threads)):
        tiles = {} if tile is None else {(inputs, outputs): tile, (outputs, inputs): tile}
        monkeypatch.setattr(halo_kernels, "HALO_TILES", tiles)
        h, y, moments = normed_convolved(s, norm, weight, 1, added=added)
        after = batch_norm(layer, moments, y[:, 0].numel(), layer.weight.detach(), layer.bias.detach())
        g, sums = by_input(added, weight, 1, s, norm)
        by_norm = NormGradient(y, after, after.mean, after.scale)
        mean, scale, gamma, beta = (tensor.detach()[:, None, None] for tensor in after)
        masked = laid_out(added * ((y.float() - mean) * scale * gamma + beta > 0))
        by_y, by_h, more_sums = by_norm_and_input(masked, by_norm, weight, 1, s, norm)
        finals = [*finished(sums, norm, Products(weight)), *finished(more_sums, norm, Products(weight))]
        found.append([h, y, after.mean, after.scale, g, by_y, by_h, *finals])
    assert (found[1][0] != found[0][0]).float().mean() < 1e-3  # a multiply-add that rounds once instead of twice
    for a, b in zip(*found, strict=True):
        close(b, a.double(), 3e-3)
