"""Pre-activation residual networks (He et al. 2016b; Zagoruyko and Komodakis 2016)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor, nn

from swamp.tasks.models.layers import Moments, NormReLU, conv, convolutions_fit


class Block(nn.Module):
    """x + conv(relu(bn(conv(relu(bn(x)))))). It returns shortcut and branch, whose sum is left to the norm that comes next.

    If `fused`, in training mode in bf16 on CUDA, Triton kernels compute the whole block and leave the moments of its output for the next
    norm; the branch is then None.
    """

    fused = False

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = NormReLU(inputs)
        self.conv1 = conv(inputs, outputs, 3, stride)
        self.bn2 = NormReLU(outputs)
        self.conv2 = conv(outputs, outputs, 3)
        self.shortcut = conv(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None

    def forward(self, x: Tensor, branch: Tensor | None, moments: Moments | None) -> tuple[Tensor, Tensor | None, Moments | None]:
        if self.fused and self.training and convolutions_fit(x, self.convolutions()):
            from swamp.tasks.models.block_kernels import residual_block

            x, moments = residual_block(self, x, branch, moments)
            return x, None, moments
        x, h = self.bn1(x, branch, moments)
        if self.shortcut is not None:
            x = self.shortcut(h)
        _, h = self.bn2(self.conv1(h))
        return x, self.conv2(h), None

    def convolutions(self) -> list[nn.Conv2d]:
        return [self.conv1, self.conv2, *([] if self.shortcut is None else [self.shortcut])]


class ResidualNet(nn.Module):
    """A stem, then stages of `blocks` blocks. Each stage but the first halves the resolution."""

    def __init__(self, channels: int, classes: int, stem: int, widths: Sequence[int], blocks: int) -> None:
        super().__init__()
        self.stem = conv(channels, stem, 3)
        layers: list[Block] = []
        inputs = stem
        for stage, width in enumerate(widths):
            for index in range(blocks):
                layers.append(Block(inputs, width, 2 if stage and not index else 1))
                inputs = width
        self.blocks = nn.Sequential(*layers)
        self.bn = NormReLU(inputs)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x, branch, moments = self.stem(x), None, None
        for block in self.blocks:
            x, branch, moments = block(x, branch, moments)
        _, h = self.bn(x, branch, moments)
        return self.classifier(h.mean((2, 3)))


def wide_residual_net(depth: int, factor: int) -> Callable[[int, int], ResidualNet]:
    """Return WRN-d-k: three stages, k times as wide as 16, 32, 64.

    Depth counts the convolutions on the longest path and either the three shortcuts (28 = 6·4 + 4) or, as in WRN-32, the classifier
    (32 = 6·5 + 2).
    """
    blocks, rest = divmod(depth - 2, 6)
    if blocks < 1 or rest not in (0, 2) or factor < 1:
        raise ValueError(f"model 'wrn{depth}-{factor}': there are depths 6n+2 and 6n+4, such as 16, 28 and 32, and widths from 1 on")
    return partial(ResidualNet, stem=16, widths=[factor * width for width in (16, 32, 64)], blocks=blocks)
