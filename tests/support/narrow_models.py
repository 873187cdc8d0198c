"""Small networks of the kinds that channel pruning meets, each with the shape of its input."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.tasks.models import residual, resnet
from swamp.tasks.models.layers import conv


class DenseNet(nn.Module):
    """Each layer reads all earlier ones, joined."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8 + 4 * index) for index in range(4))
        self.layers = nn.ModuleList(nn.Conv2d(8 + 4 * index, 4, 3, padding=1) for index in range(3))
        self.head = nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        found = [self.stem(x)]
        for norm, layer in zip(self.norms, self.layers, strict=False):
            found.append(layer(F.relu(norm(torch.cat(found, 1)))))
        return self.head(F.adaptive_avg_pool2d(F.relu(self.norms[3](torch.cat(found, 1))), 1).flatten(1))


class Inverted(nn.Module):
    """A block of MobileNet v2: widen, depthwise, narrow, with squeeze and excitation as in v3."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        wide = 3 * inputs
        self.widen, self.norm1 = nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.depthwise, self.norm2 = nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide)
        self.squeeze, self.excite = nn.Conv2d(wide, 4, 1), nn.Conv2d(4, wide, 1)
        self.narrow, self.norm3 = nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.adds = inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu6(self.norm1(self.widen(x)))
        h = F.hardswish(self.norm2(self.depthwise(h)))
        h = h * torch.sigmoid(self.excite(F.relu(self.squeeze(h.mean((2, 3), keepdim=True)))))
        h = self.norm3(self.narrow(h))
        return x + h if self.adds else h


def mobile_net() -> nn.Module:
    stem = [nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)]
    spread = [nn.Conv2d(12, 24, 3, padding=1, groups=12), nn.ReLU()]  # two outputs for each channel
    body = [Inverted(8, 8), Inverted(8, 12), Inverted(12, 12), *spread]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 5))


class UNet(nn.Module):
    """Skips are joined to what comes up from below, enlarged once by a transposed convolution and once by interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.down3 = self._two(3, 8), self._two(8, 16), self._two(16, 16)
        self.up2, self.join2, self.join1 = nn.ConvTranspose2d(16, 8, 2, stride=2), self._two(24, 12), self._two(20, 8)
        self.head = nn.Conv2d(8, 2, 1)

    @staticmethod
    def _two(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU()),
            *(nn.Conv2d(outputs, outputs, 3, padding=1), nn.InstanceNorm2d(outputs, affine=True), nn.PReLU(outputs)),
        )

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        below = self.up2(self.down3(F.avg_pool2d(second, 2)))
        below = self.join2(torch.cat([second, below], 1))
        return self.head(self.join1(torch.cat([first, F.interpolate(below, scale_factor=2.0)], 1)))


class ResidualMLP(nn.Module):
    """A stream of features to which each block adds, scaled by a parameter for each feature."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(6, 24), nn.Linear(24, 3)
        self.up, self.down = (nn.ModuleList(nn.Linear(*size) for _ in range(2)) for size in ((24, 40), (40, 24)))
        self.norms, self.scales = nn.ModuleList(nn.BatchNorm1d(24) for _ in range(2)), nn.ParameterList(torch.rand(24) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for up, down, norm, scale in zip(self.up, self.down, self.norms, self.scales, strict=True):
            x = x + scale * down(F.gelu(up(norm(x))))
        return self.head(x)


class PlainVGG(nn.Module):
    """Two convolutions, and a linear layer for which a channel is a block of sixteen features."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
            *(nn.Conv2d(12, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        )
        self.classifier = nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 5))

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        return self.classifier(x.view(x.size(0), -1))


def small_resnet(bottlenecks: bool) -> nn.Module:
    """A ResNet whose stages are an eighth as wide as usual."""
    block, expansion = (resnet.bottleneck, 4) if bottlenecks else (resnet.basic, 1)
    layers: list[nn.Module] = [conv(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]
    inputs = 8
    for stage, width in enumerate(resnet.WIDTHS):
        for index in range(2):
            layers.append(block(inputs, width // 8, 2 if stage and not index else 1))
            inputs = expansion * width // 8
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 5))


class PlainWRN(nn.Module):
    """The WRN of this package in torch's own modules, which other libraries know."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn, self.classifier = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.Linear(64, 5)
        sizes = [(8, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1)]
        self.blocks = nn.ModuleList(PlainBlock(*size) for size in sizes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.classifier(F.relu(self.bn(x)).mean((2, 3)))


class PlainBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(x))
        x = x if self.shortcut is None else self.shortcut(h)
        return x + self.conv2(F.relu(self.bn2(self.conv1(h))))


class Case(NamedTuple):
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    widths: tuple[int, ...]  # the numbers of channels of the groups that can get narrower, classifiers not pruned


CASES = {
    "wrn": Case(
        lambda: residual.ResidualNet(3, 5, stem=8, widths=[16, 32, 64], blocks=2), (2, 3, 16, 16), (8, 16, 16, 16, 32, 32, 32, 64, 64, 64)
    ),
    "wrn-plain": Case(PlainWRN, (2, 3, 16, 16), (8, 16, 16, 16, 32, 32, 32, 64, 64, 64)),
    "resnet18": Case(lambda: small_resnet(False), (2, 3, 16, 16), (8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64)),
    "resnet50": Case(
        lambda: small_resnet(True), (2, 3, 16, 16), (8, 32, 8, 8, 8, 8, 64, 16, 16, 16, 16, 128, 32, 32, 32, 32, 256, 64, 64, 64, 64)
    ),
    "vgg": Case(PlainVGG, (2, 3, 16, 16), (12, 16, 32)),
    "densenet": Case(DenseNet, (2, 3, 12, 12), (8, 4, 4, 4)),
    "mobilenet": Case(mobile_net, (2, 3, 16, 16), (8, 24, 4, 24, 4, 12, 36, 4)),
    "unet": Case(UNet, (2, 3, 16, 16), (4, 8, 4, 16, 4, 16, 8, 4, 12, 4, 8)),  # GroupNorm of four groups leaves four
    "mlp": Case(ResidualMLP, (2, 6), (24, 40, 40)),
}


def made(name: str) -> tuple[nn.Module, Tensor]:
    """A network with norms that have seen something, in float64, and an input for it."""
    torch.manual_seed(0)
    model = CASES[name].make()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.modules.batchnorm._BatchNorm, nn.GroupNorm)):
                module.weight.copy_(torch.rand(len(module.weight)) + 0.5)
                module.bias.copy_(torch.rand(len(module.bias)) - 0.2)  # A channel without input is then not nothing.
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.running_mean.copy_(torch.rand(module.num_features) - 0.5)  # type: ignore[union-attr]
    return model.double().eval(), torch.randn(CASES[name].shape).double()
