"""Networks by name. Each is a function of the numbers of input channels and of classes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from torch import nn

from swamp.core.discovery import registered
from swamp.core.errors import nearest
from swamp.tasks.models.residual import ResidualNet, wide_residual_net
from swamp.tasks.models.resnet import ResNet
from swamp.tasks.models.vgg import VGG

Factory = Callable[[int, int], nn.Module]

MODELS: dict[str, Factory] = {
    "resnet-digits": partial(ResidualNet, stem=16, widths=(16, 32, 80), blocks=1),
    "resnet18": partial(ResNet, depths=(2, 2, 2, 2)),
    "resnet18-imagenet": partial(ResNet, depths=(2, 2, 2, 2), imagenet_stem=True),
    "resnet50": partial(ResNet, depths=(3, 4, 6, 3), bottlenecks=True, imagenet_stem=True),
    "vgg13": partial(VGG, depths=(2, 2, 2, 2, 2)),
    "vgg16": partial(VGG, depths=(2, 2, 3, 3, 3)),
    "wrn28-2": wide_residual_net(28, 2),
    "wrn32-4": wide_residual_net(32, 4),
}


def find_model(name: str) -> Factory:
    """Return the network of that name: one of `MODELS`, any wide residual network, like wrn16-8, or one that a distribution registers."""
    if name in MODELS:
        return MODELS[name]
    if match := re.fullmatch(r"wrn([0-9]{1,4})-([0-9]{1,3})", name):
        return wide_residual_net(int(match[1]), int(match[2]))
    others: dict[str, Factory] = registered("swamp.models")  # All that is installed is searched for them, which takes a while.
    if name in others:
        return others[name]
    raise ValueError(f"unknown model {name!r}; {nearest(name, MODELS | others)}, or any other wrnDEPTH-WIDTH")
