"""The layers that these networks share: the convolution, and BatchNorm with the addition before it and the ReLU after it.

The norm has Triton kernels, which an engine turns on by setting `fused`.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HAS_TRITON = find_spec("triton") is not None
KERNEL_CHANNELS = (16, 32, 64, 128)  # numbers of input and output channels that the kernels of convolutions support


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that pads to keep the image's size, initialised Kaiming-normal over the outgoing connections."""
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class Moments(NamedTuple):
    """Sums over parts of an image batch, by channel. The programs of a kernel leave them for the norm that follows.

    In the forward pass they are the mean of each part and the sum of squared deviations from it or, if `raw`, Σ x and Σ x². In the
    backward pass they are Σ g and Σ g ŝ or, if `raw`, Σ g and Σ g s. The gradient g is zero where the output of the ReLU is zero.
    """

    partial: Tensor  # two sums × channels × parts
    num_parts: int
    rows_each: int  # the pixels of a part; the last may have fewer
    raw: bool = False


class NormReLU(nn.BatchNorm2d):
    """Returns x + branch and relu(BatchNorm(x + branch)), which stands before each convolution of a pre-activation residual network.

    A block leaves its addition to the norm that follows, so that one pass over the data can do both. If `fused`, in training mode on
    CUDA, four Triton kernels compute both passes instead of about ten. `moments` are those of x, if a kernel has left them.
    """

    fused = False

    def forward(self, x: Tensor, branch: Tensor | None = None, moments: Moments | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        if self.fused and self.training and norm_relu_fits(x):
            from swamp.tasks.models.norm_relu_kernels import norm_relu

            return norm_relu(self, x, branch, moments)
        if branch is not None:
            x = x + branch
        return x, F.relu(super().forward(x))


def norm_relu_fits(x: Tensor) -> bool:
    """Return whether the kernels can be used: images on CUDA in channels-last layout, with a power of two from 16 to 512 as channels."""
    channels = x.shape[1]
    return (
        HAS_TRITON
        and x.is_cuda
        and x.is_contiguous(memory_format=torch.channels_last)
        and 16 <= channels <= 512
        and channels & (channels - 1) == 0
    )


def convolutions_fit(x: Tensor, layers: Iterable[nn.Conv2d]) -> bool:
    """Return whether the kernels can convolve x by each of these layers: bf16 images on CUDA in channels-last layout."""
    most = max(max(layer.in_channels, layer.out_channels) for layer in layers)
    return (
        HAS_TRITON
        and x.is_cuda
        and x.dtype == torch.bfloat16
        and x.is_contiguous(memory_format=torch.channels_last)
        and all(_convolution_fits(layer) for layer in layers)
        and x.numel() // max(x.shape[1], 1) * most < 2**31  # The kernels compute offsets as 32-bit numbers.
    )


def _convolution_fits(layer: nn.Conv2d) -> bool:
    weight = layer.weight
    return (
        layer.in_channels in KERNEL_CHANNELS
        and layer.out_channels in KERNEL_CHANNELS
        and (weight.dtype == torch.bfloat16 or torch.is_autocast_enabled("cuda"))
        and weight.is_contiguous(memory_format=torch.channels_last)
    )
