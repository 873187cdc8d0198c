"""Pre-activation residual networks (He et al. 2016b; Zagoruyko and Komodakis 2016)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from swamp.tasks.models.conv3x3 import Conv3x3
from swamp.tasks.models.norm_relu import NormReLU


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    plain = size == 3 and stride == 1
    layer = Conv3x3(inputs, outputs) if plain else nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class Block(nn.Module):
    """x + conv(relu(bn(conv(relu(bn(x)))))), where the sum of shortcut and branch is left to the norm that comes next."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = NormReLU(inputs)
        self.conv1 = conv(inputs, outputs, 3, stride)
        self.bn2 = NormReLU(outputs)
        self.conv2 = conv(outputs, outputs, 3)
        self.shortcut = conv(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None

    def forward(self, x: Tensor, branch: Tensor | None) -> tuple[Tensor, Tensor]:
        x, h = self.bn1(x, branch)
        if self.shortcut is not None:
            x = self.shortcut(h)
        _, h = self.bn2(self.conv1(h))
        return x, self.conv2(h)


class ResidualNet(nn.Module):
    """A stem, then stages of `blocks` blocks; each stage but the first halves the resolution."""

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
        x, branch = self.stem(x), None
        for block in self.blocks:
            x, branch = block(x, branch)
        _, h = self.bn(x, branch)
        return self.classifier(h.mean((2, 3)))
