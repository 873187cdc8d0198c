"""BatchNorm and ReLU of a sum: the kernels against the layer as it is written, in float64, on a GPU or by Triton's interpreter."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from swamp.tasks.models import layers
from swamp.tasks.models.layers import NormReLU, norm_relu_fits
from tests.support.triton_device import DEVICE, INTERPRETED, on_triton


def both_paths(layer: NormReLU, x: Tensor, branch: Tensor | None, weights: tuple[Tensor, Tensor | None]) -> list[Tensor]:
    """Outputs, running statistics and gradients. `weights` make a scalar of the two outputs; without the second, the sum is unused."""
    leaves = [x, *([] if branch is None else [branch])]
    for leaf in leaves:
        leaf.requires_grad_()
    s, h = layer(x, branch)
    loss = (h * weights[0]).sum() + (0 if weights[1] is None else (s * weights[1]).sum())
    gradients = torch.autograd.grad(loss, [*leaves, layer.weight, layer.bias])
    assert layer.running_mean is not None
    assert layer.running_var is not None
    return [s.detach(), h.detach(), layer.running_mean, layer.running_var, *gradients]


def test_the_plain_path_is_batch_norm_and_relu() -> None:
    x, branch = torch.randn(4, 16, 5, 5), torch.randn(4, 16, 5, 5)
    layer, reference = NormReLU(16), torch.nn.BatchNorm2d(16)
    s, h = layer(x, branch)
    assert torch.equal(s, x + branch)
    assert torch.equal(h, F.relu(reference(x + branch)))
    assert torch.equal(layer.running_var, reference.running_var)  # type: ignore[arg-type]


@on_triton
@pytest.mark.parametrize("dtype", [torch.float32] if INTERPRETED else [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(128, 32, 32, 32), (80, 16, 32, 32), (37, 128, 7, 5), (3, 512, 2, 2)])
@pytest.mark.parametrize("has_branch", [False, True])
@pytest.mark.parametrize("sum_used", [False, True])
def test_kernels_agree_with_float64(
    dtype: torch.dtype, shape: tuple[int, ...], has_branch: bool, sum_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if INTERPRETED:
        monkeypatch.setattr(layers, "norm_relu_fits", lambda x: True)
        shape = (min(shape[0], 9), *shape[1:])

    def draw() -> Tensor:
        return torch.randn(shape, device=DEVICE).to(dtype).contiguous(memory_format=torch.channels_last)

    torch.manual_seed(hash((shape, has_branch, sum_used)) % 1000)
    layer = NormReLU(shape[1]).to(DEVICE)
    with torch.no_grad():
        layer.weight.uniform_(0.5, 1.5)
        layer.bias.uniform_(-0.5, 0.5)
    # a mean far from zero, of which the running mean knows something
    offset = 3 * torch.randn(shape[1], device=DEVICE)[None, :, None, None]
    layer.running_mean = 0.9 * offset.flatten()
    x, branch = (draw() + offset).to(dtype).contiguous(memory_format=torch.channels_last), draw() if has_branch else None
    weights = draw(), draw() if sum_used else None
    reference = copy.deepcopy(layer).double()
    layer.fused = True
    assert INTERPRETED or norm_relu_fits(x)
    with torch.no_grad():  # Rounding decides whether the ReLU lets through what is all but zero: no gradient comes from there.
        total = x.double() if branch is None else x.double() + branch.double()
        normed = F.batch_norm(total, None, None, reference.weight, reference.bias, training=True)
        weights[0].masked_fill_(normed.abs() < (1e-5 if dtype == torch.float32 else 1e-2), 0.0)
    double_branch = None if branch is None else branch.double()
    double_x = x.double()
    if branch is not None and dtype == torch.bfloat16:  # the sum is rounded before anything else sees it
        rounded = (x.float() + branch.float()).to(dtype).double()
        double_x, double_branch = rounded - branch.double(), branch.double()
    found = both_paths(layer, x.clone(), None if branch is None else branch.clone(), weights)
    wanted = both_paths(reference, double_x, double_branch, (weights[0].double(), None if weights[1] is None else weights[1].double()))
    tolerance = 1e-5 if dtype == torch.float32 else 5e-3
    for a, b in zip(found, wanted, strict=True):
        assert (a.double() - b).norm() <= tolerance * b.norm()
    assert int(layer.num_batches_tracked) == 1  # type: ignore[arg-type]
