"""VGG (Simonyan and Zisserman 2015) as it is used on small images, with BatchNorm after each convolution and one linear layer."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from swamp.tasks.models.layers import conv

WIDTHS = (64, 128, 256, 512, 512)


class VGG(nn.Module):
    """Five stages of `depths` convolutions. Each but the last ends by halving the resolution, the last by a maximum over all pixels
    (32×32 images are 2×2 by then, so that this is the same as halving once more)."""

    def __init__(self, channels: int, classes: int, depths: Sequence[int]) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        inputs = channels
        for width, depth in zip(WIDTHS, depths, strict=True):
            layers: list[nn.Module] = [] if not stages else [nn.MaxPool2d(2)]
            for _ in range(depth):
                layers += [conv(inputs, width, 3), nn.BatchNorm2d(width), nn.ReLU()]
                inputs = width
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.stages(x).amax((2, 3)))
