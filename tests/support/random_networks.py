"""Networks of random operations, in which channels are added, joined, gated, padded and normalised in all orders."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIZE = 8  # of the images
ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    *(nn.ReLU, nn.GELU, nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Softplus, nn.LogSigmoid, nn.PReLU),
    *(lambda: nn.ReLU(inplace=True), lambda: nn.LeakyReLU(0.1, inplace=True)),
)
POOLING: tuple[Callable[[], nn.Module], ...] = (lambda: nn.AvgPool2d(3, 1, 1), lambda: nn.MaxPool2d(3, 1, 1))
MEETINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: y - 2 * x,
    "multiply": lambda x, y: x * y,
    "maximum": torch.maximum,
    "join": lambda x, y: torch.cat([y, x], 1),
}


class Enlarged(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2.0, mode="bilinear")


class Padded(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, (1, 0, 1, 0), value=self.value)


class Scaled(nn.Module):
    """Each channel is multiplied by a parameter, and another one is added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.factor, self.offset = (nn.Parameter(torch.randn(width, 1, 1)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor + self.offset


class Gated(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(width, 4, 1), nn.Conv2d(4, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))


class RandomNetwork(nn.Module):
    """Steps follow each other; each one's output may be kept, and met by a later one."""

    def __init__(self, draw: Random) -> None:
        super().__init__()
        self.steps, self.meetings = nn.ModuleList(), dict[int, tuple[str, int]]()  # step -> how it meets which earlier one
        self.draw, widths = draw, [3]
        self._add(self._convolution(3, 8), widths, 8)
        for _ in range(draw.randint(4, 9)):
            if widths[-1] > 32:
                self._add(self._convolution(widths[-1], 6), widths, 6)
            self._add_step(widths)
        self.end = draw.choice(("mean", "maximum", "flatten", "permute"))
        self.head = nn.Linear(widths[-1] * (16 if self.end == "flatten" else 1), 3, bias=draw.random() < 0.8)
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, nn.modules.batchnorm._NormBase) and module.running_mean is not None:
                    module.running_mean.uniform_(-0.5, 0.5)
            for parameter in self.parameters():
                if parameter.ndim == 1:
                    parameter.uniform_(-1, 1)

    def _add(self, module: nn.Module, widths: list[int], width: int) -> None:
        self.steps.append(module)
        widths.append(width)

    def _add_step(self, widths: list[int]) -> None:
        draw, width = self.draw, widths[-1]
        match draw.choice(("convolution", "convolution", "meet", "meet", "depthwise", "transposed", "other", "other", "other")):
            case "convolution":
                self._add(self._convolution(width, new := draw.choice((4, 6, 8))), widths, new)
            case "depthwise":
                new = width * draw.choice((1, 1, 2))
                self._add(nn.Conv2d(width, new, 3, padding=1, groups=width, bias=draw.random() < 0.6), widths, new)
            case "transposed":
                self._add(nn.ConvTranspose2d(width, width, 3, padding=1), widths, width)
            case "meet":
                earlier, how = draw.randrange(1, len(widths)), draw.choice(list(MEETINGS))
                if how == "join" or widths[earlier] == width:
                    self.meetings[len(self.steps)] = how, earlier - 1
                    self._add(nn.Identity(), widths, width + widths[earlier] * (how == "join"))
            case _:
                norms = [nn.BatchNorm2d(width), nn.InstanceNorm2d(width, affine=True), nn.GroupNorm(2, width)]
                others = [Gated(width), Scaled(width), Enlarged(), Padded(draw.choice((0.0, 1.0))), draw.choice(POOLING)()]
                self._add(draw.choice([*norms, *others, *(draw.choice(ACTIVATIONS)() for _ in range(3))]), widths, width)

    def _convolution(self, inputs: int, outputs: int) -> nn.Module:
        padding = self.draw.choice((0, 1, 1))
        bias, reflects = self.draw.random() < 0.7, self.draw.random() < 0.3
        return nn.Conv2d(inputs, outputs, 2 * padding + 1, padding=padding, padding_mode="reflect" if reflects else "zeros", bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        found: list[Tensor] = []
        for index, step in enumerate(self.steps):
            x = step(x)
            if index in self.meetings:
                how, earlier = self.meetings[index]
                x = MEETINGS[how](x, F.interpolate(found[earlier], size=x.shape[2:]))
            found.append(x)
        match self.end:
            case "mean":
                return self.head(x.mean((2, 3)))
            case "maximum":
                return self.head(x.amax((2, 3)))
            case "flatten":
                return self.head(F.adaptive_avg_pool2d(x, 4).flatten(1))
        return self.head(x.permute(0, 2, 3, 1))
