"""Networks by name; each is a function of the number of input channels and of classes."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from swamp.tasks.models.residual import ResidualNet

MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "resnet-digits": lambda channels, classes: ResidualNet(channels, classes, stem=16, widths=(16, 32, 80), blocks=1),
}
