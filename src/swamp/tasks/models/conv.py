"""The convolution that all these networks are made of."""

from __future__ import annotations

from torch import nn

from swamp.tasks.models.conv3x3 import Conv3x3


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """No bias, "same" padding, Kaiming-normal over the outgoing connections."""
    plain = size == 3 and stride == 1
    layer = Conv3x3(inputs, outputs) if plain else nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
