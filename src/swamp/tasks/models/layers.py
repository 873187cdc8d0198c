"""The layers that these networks share: the convolution, and BatchNorm with the addition before it and the ReLU after it.

Both have Triton kernels, which an engine turns on by setting `fused`.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HAS_TRITON = find_spec("triton") is not None


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that pads to keep the image's size, initialised Kaiming-normal over the outgoing connections."""
    plain = size == 3 and stride == 1
    layer = Conv3x3(inputs, outputs) if plain else nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class Conv3x3(nn.Conv2d):
    """A 3×3 convolution of stride 1 that keeps the image's size and has no bias.

    If `fused`, in bf16 on CUDA, Triton kernels compute output and gradients. For up to 128 channels they take half to four fifths of the
    library's time when particles train side by side.
    """

    fused = False

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.fused and conv3x3_fits(x, self.weight):
            from swamp.tasks.models.conv3x3_kernels import conv3x3

            return conv3x3(x, self.weight)
        return super().forward(x)


def conv3x3_fits(x: Tensor, weight: Tensor) -> bool:
    """Return whether the kernels can be used: bf16 images on CUDA in channels-last layout, with 16, 32, 64 or 128 channels."""
    layout = torch.channels_last
    outputs, inputs = weight.shape[:2]
    pixels = x.numel() // max(inputs, 1)
    return (
        HAS_TRITON
        and x.is_cuda
        and x.dtype == weight.dtype == torch.bfloat16
        and x.is_contiguous(memory_format=layout)
        and weight.is_contiguous(memory_format=layout)
        and inputs in (16, 32, 64, 128)
        and outputs in (16, 32, 64, 128)
        and pixels * max(inputs, outputs) < 2**31  # The kernels compute offsets as 32-bit numbers.
    )


class NormReLU(nn.BatchNorm2d):
    """Returns x + branch and relu(BatchNorm(x + branch)), which stands before each convolution of a pre-activation residual network.

    A block leaves its addition to the norm that follows, so that one pass over the data can do both. If `fused`, in training mode on
    CUDA, four Triton kernels replace about ten, forward and backward together.
    """

    fused = False

    def forward(self, x: Tensor, branch: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        if self.fused and self.training and norm_relu_fits(x):
            from swamp.tasks.models.norm_relu_kernels import norm_relu

            return norm_relu(self, x, branch)
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
