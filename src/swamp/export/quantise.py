"""Make a network compute with 8-bit weights and inputs, and simulate that in torch.

The rows of a pruned weight (its output channels) have a scale each, so that the largest weight of a row becomes 127. The input of a layer
has one scale: numbers are rounded to 0 … 127 if none is negative, else to -64 … 63. Its scale makes the mean squared error smallest over
inputs that were seen in calibration. Layers that read the network's input, and those that are not pruned, compute with floats. What is
not pruned is stored as float16 where that changes next to nothing, because beside 8-bit values it would be much of the file.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from swamp.core.mask import Mask
from swamp.export.program import NetworkProgram
from swamp.export.reader import QUANTISED

LEVELS = 127
SIGNED_ZERO = 64  # what stands for 0 in an input that may be negative
SAMPLES = 1 << 14  # numbers of each input that are looked at
CLIPPINGS = torch.linspace(0.2, 1.0, 81)  # shares of the largest number that are tried
aten = torch.ops.aten
OPERANDS = {aten.convolution.default: (0, 1), aten.addmm.default: (1, 2), aten.mm.default: (0, 1)}  # where they have inputs and weights
EMPTY_ROW = 1.0  # the scale of a row without weights


class InputRange(NamedTuple):
    """How the input of a layer is rounded: to round(x / scale) + zero, from 0 to 127."""

    scale: float
    zero: int

    def rounded(self, x: Tensor) -> Tensor:
        """Return an input rounded to its 8-bit values, as floats.

        >>> InputRange(0.5, 0).rounded(torch.tensor([-1.0, 0.6, 100.0])).tolist()
        [0.0, 0.5, 63.5]
        """
        return ((x / self.scale).round().add(self.zero).clamp(0, LEVELS) - self.zero) * self.scale


class Quantised(NamedTuple):
    """A program for 8-bit weights and inputs, and a network that computes in torch what it does."""

    program: NetworkProgram
    simulated: nn.Module


def quantised_rows(weights: Tensor, name: str, one_scale: bool = False) -> tuple[Tensor, Tensor]:
    """Return a weight as 8-bit integers, and the scales of its rows, which are equal if `one_scale`.

    >>> quantised_rows(torch.tensor([[0.5, -1.0], [0.0, 0.0]]), "w")
    (tensor([[  64, -127],
            [   0,    0]], dtype=torch.int8), tensor([0.0079, 1.0000]))
    """
    if weights.dtype != torch.float32 or not weights.ndim:
        raise ValueError(f"{name} is no matrix or kernel of float32 weights, which 8-bit values need")
    if not weights.isfinite().all():
        raise ValueError(f"a weight of {name} is not finite, and has no 8-bit value")
    largest = weights.abs().reshape(len(weights), -1).amax(1) if weights.numel() else torch.zeros(len(weights))
    if one_scale and len(largest):
        largest = largest.amax().expand(len(largest))
    scales = largest / LEVELS
    scales = torch.where(scales > 0, scales, EMPTY_ROW)  # also where the quotient is too small for a float
    whole = (weights / scales.reshape(-1, *[1] * (weights.ndim - 1))).round().clamp(-LEVELS, LEVELS)
    return whole.to(torch.int8), scales


def halved(tensor: Tensor) -> Tensor:
    """Return a float32 tensor as float16, or unchanged if a number would change by more than a thousandth and a millionth of the largest.

    >>> [halved(torch.tensor(numbers)).dtype for numbers in ([0.1, 3.0], [1e-9, 3.0], [1e-9, 2e-9], [0.1, 1e5])]
    [torch.float16, torch.float16, torch.float32, torch.float32]
    """
    if tensor.dtype != torch.float32 or not tensor.numel() or not tensor.isfinite().all():
        return tensor
    half = tensor.half()
    kept = torch.isclose(half.float(), tensor, rtol=1e-3, atol=1e-6 * float(tensor.abs().max())).all()
    return half if kept else tensor


def with_one_scale(program: Mapping[str, Any] | None) -> set[str]:
    """Return the weights with a single scale. These are transposed: their rows are the inputs of a layer, not its outputs."""
    return {node["weight"] for node in program["nodes"] if node["op"] == "transposed_linear"} if program else set()


def with_rounded_weights(model: nn.Module, mask: Mask, program: Mapping[str, Any] | None = None) -> nn.Module:
    """Return a copy of a model with the numbers that are stored beside 8-bit inputs: pruned weights in 8 bits, others in 16 or 32."""
    rounded = copy.deepcopy(model)
    parameters, one_scale = dict(rounded.named_parameters()), with_one_scale(program)
    with torch.no_grad():
        for name, layer in mask.layers.items():
            whole, scales = quantised_rows(parameters[name] * layer, name, name in one_scale)
            parameters[name].copy_(whole * scales.reshape(-1, *[1] * (whole.ndim - 1)))
        for name, tensor in (*parameters.items(), *rounded.named_buffers()):
            if name not in mask.layers:
                tensor.copy_(halved(tensor))
    return rounded.eval()


def quantise(made: NetworkProgram, model: nn.Module, mask: Mask, calibrate: Callable[[nn.Module], object]) -> Quantised:
    """Return a network with 8-bit weights and inputs. `calibrate` calls the module that it is given with typical inputs."""
    rounded = with_rounded_weights(model, mask, made.program)
    wanted = quantisable(made.program, mask)
    weights = {name: parameter.detach() for name, parameter in rounded.named_parameters() if name in wanted}
    seen = InputSamples(weights)
    with torch.no_grad():
        calibrate(WithMode(rounded, seen))
    ranges = {name: input_range(torch.cat(samples)) for name, samples in seen.samples.items()}
    nodes = [
        {**node, "input": list(ranges[node["weight"]])} if node["op"] in QUANTISED and node["weight"] in ranges else node
        for node in made.program["nodes"]
    ]
    return Quantised(
        made._replace(program={**made.program, "nodes": nodes}),
        WithMode(rounded, RoundedInputs({name: weights[name] for name in ranges}, ranges)),
    )


def quantisable(program: Mapping[str, Any], mask: Mask) -> set[str]:
    """Return the weights of layers whose inputs may be 8-bit: pruned ones that do not read the network's input."""
    layers = [node for node in program["nodes"] if node["op"] in QUANTISED]
    first = {node["weight"] for node in layers if node["in"][0] < len(program["inputs"])}
    return {node["weight"] for node in layers if node["weight"] in mask.layers} - first


def input_range(samples: Tensor) -> InputRange:
    """Return the range with the least squared error.

    >>> found = input_range(torch.linspace(0, 12.7, 128))
    >>> round(found.scale, 4), found.zero
    (0.1, 0)
    """
    zero = 0 if not len(samples) or float(samples.min()) >= 0 else SIGNED_ZERO
    largest = float(samples.abs().max()) if len(samples) else 0.0
    if not 0 < largest < float("inf"):  # An input that is always zero can have any scale.
        return InputRange(1.0, zero)
    tried = [InputRange(float(share) * largest / (LEVELS - zero), zero) for share in CLIPPINGS]
    errors = [float((found.rounded(samples) - samples).double().square().mean()) for found in tried]
    return tried[errors.index(min(errors))]


class LayerMode(TorchDispatchMode):
    """A dispatch mode that may replace the inputs of layers. A layer is recognised by the memory of its weight, whatever calls it."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.names = {_memory(weight): name for name, weight in weights.items()}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in OPERANDS:
            x, weight = OPERANDS[function]
            name = self.names.get(_memory(args[weight]))
            if name is not None:
                args = (*args[:x], self.input(name, args[x]), *args[x + 1 :])
        return function(*args, **(kwargs or {}))

    def input(self, name: str, x: Tensor) -> Tensor:
        """Return what a layer computes with instead of its input."""
        return x


def _memory(weight: Tensor) -> tuple[int, int]:
    return (weight.data_ptr(), weight.numel())


class InputSamples(LayerMode):
    """Collects inputs of layers."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__(weights)
        self.samples: dict[str, list[Tensor]] = {}

    def input(self, name: str, x: Tensor) -> Tensor:
        found = x.detach().reshape(-1)
        extremes = torch.stack([found.min(), found.max()]) if len(found) else found
        self.samples.setdefault(name, []).append(torch.cat([found[:: max(1, len(found) // SAMPLES)], extremes]))
        return x


class RoundedInputs(LayerMode):
    """Rounds inputs of layers."""

    def __init__(self, weights: Mapping[str, Tensor], ranges: Mapping[str, InputRange]) -> None:
        super().__init__(weights)
        self.ranges = ranges

    def input(self, name: str, x: Tensor) -> Tensor:
        return self.ranges[name].rounded(x)


class WithMode(nn.Module):
    """A model whose layers are called in a mode."""

    def __init__(self, model: nn.Module, mode: LayerMode) -> None:
        super().__init__()
        self.model, self.mode = model, mode

    def forward(self, *inputs: Any, **named: Any) -> Any:
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # It would compute all of an attention at once, layers included.
        try:
            with self.mode:
                return self.model(*inputs, **named)
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
