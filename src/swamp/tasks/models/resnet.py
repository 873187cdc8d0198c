"""Residual networks with BatchNorm after each convolution (He et al. 2016a)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from swamp.tasks.models.layers import conv

WIDTHS = (64, 128, 256, 512)


class Residual(nn.Module):
    """relu(shortcut(x) + layers(x)); the shortcut is a 1×1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.shortcut(x) + self.layers(x))


def basic(inputs: int, width: int, stride: int) -> Residual:
    """Return a block of two 3×3 convolutions."""
    layers = [conv(inputs, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(), conv(width, width, 3), nn.BatchNorm2d(width)]
    return Residual(inputs, width, stride, layers)


def bottleneck(inputs: int, width: int, stride: int) -> Residual:
    """Return a block of a 1×1, a 3×3 and a 1×1 convolution, which widens to four times the width. The 3×3 one strides."""
    return Residual(
        inputs,
        4 * width,
        stride,
        [
            *(conv(inputs, width, 1), nn.BatchNorm2d(width), nn.ReLU()),
            *(conv(width, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU()),
            *(conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)),
        ],
    )


class ResNet(nn.Module):
    """A stem (3×3, or ImageNet's 7×7, which with its pooling quarters the resolution), four stages, and the mean over all pixels."""

    def __init__(self, channels: int, classes: int, depths: Sequence[int], bottlenecks: bool = False, imagenet_stem: bool = False) -> None:
        super().__init__()
        stem: list[nn.Module] = [conv(channels, 64, 7, 2) if imagenet_stem else conv(channels, 64, 3), nn.BatchNorm2d(64), nn.ReLU()]
        self.stem = nn.Sequential(*stem, *([nn.MaxPool2d(3, 2, 1)] if imagenet_stem else []))
        block, expansion = (bottleneck, 4) if bottlenecks else (basic, 1)
        inputs, stages = 64, []
        for stage, (width, depth) in enumerate(zip(WIDTHS, depths, strict=True)):
            blocks = []
            for index in range(depth):
                blocks.append(block(inputs, width, 2 if stage and not index else 1))
                inputs = expansion * width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.stages(self.stem(x)).mean((2, 3)))
