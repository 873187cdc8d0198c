"""The 3×3 convolution of residual networks."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor, nn

HAS_TRITON = find_spec("triton") is not None


class Conv3x3(nn.Conv2d):
    """A 3×3 convolution of stride 1 that keeps the image's size and has no bias.

    `fused` is set by engines that want it: in bf16 on CUDA, Triton kernels then compute output and gradients. For up to 128 channels
    they take half to four fifths of the library's time when particles train side by side.
    """

    fused = False

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.fused and _fits(x, self.weight):
            from swamp.tasks.models.conv3x3_kernels import conv3x3

            return conv3x3(x, self.weight)
        return super().forward(x)


def _fits(x: Tensor, weight: Tensor) -> bool:
    """The kernels take bf16 images on CUDA whose channels are innermost and a power of two, up to 128, in number."""
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
        and pixels * max(inputs, outputs) < 2**31  # places are 32-bit numbers
    )
