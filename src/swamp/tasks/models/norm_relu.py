"""relu(BatchNorm(x + branch)): what stands before each convolution of a residual network."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HAS_TRITON = find_spec("triton") is not None


class NormReLU(nn.BatchNorm2d):
    """BatchNorm and ReLU of a sum, with the sum: (x + branch, relu(norm(x + branch))).

    A block that leaves its sum to the norm that reads it lets one pass do both. `fused` is set by engines that want it done so: in
    training mode on CUDA, four Triton kernels then take the place of about ten, forward and backward together.
    """

    fused = False

    def forward(self, x: Tensor, branch: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        if self.fused and self.training and _fits(x):
            from swamp.tasks.models.norm_relu_kernels import norm_relu

            return norm_relu(self, x, branch)
        if branch is not None:
            x = x + branch
        return x, F.relu(super().forward(x))


def _fits(x: Tensor) -> bool:
    """The kernels take images on CUDA whose channels are innermost and a power of two in number."""
    channels = x.shape[1]
    return (
        HAS_TRITON
        and x.is_cuda
        and x.is_contiguous(memory_format=torch.channels_last)
        and 16 <= channels <= 512
        and channels & (channels - 1) == 0
    )
