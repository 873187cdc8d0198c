"""Counts the multiply-adds of a network's forward pass, dense and masked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode

from swamp.core.mask import Mask

# Products of matrices whose first argument has the dimension over which they sum last.
PRODUCTS = (F.linear, torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm, torch.bmm, Tensor.bmm)


def macs_per_weight(model: nn.Module, forward: Callable[[nn.Module], Any]) -> dict[str, int]:
    """Return the multiply-adds of one example's forward pass in every convolution, linear, recurrent and attention layer, by the name of
    the layer's weight. An embedding has none. Weights of other layers are missing, since nothing is known of them.

    `forward(model)` runs the model on one example. A layer that runs twice counts twice, and so does a weight of these layers that is
    multiplied elsewhere too, as that of an embedding is where it is the classifier.
    """
    counts: dict[str, int] = {}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    elsewhere = _Products(names)

    def counting(path: str, count: Count) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            elsewhere.depth -= 1
            for own, macs in count(module, inputs, named, output).items():
                # A weight that is computed from others is no parameter.
                name = names.get(id(attrgetter(own)(module)), f"{path}.{own}".lstrip("."))
                counts[name] = counts.get(name, 0) + macs

        return hook

    counted = [(path, module, count) for path, module in model.named_modules() if (count := _count_for(module)) is not None]
    handles = [
        handle
        for path, module, count in counted
        for handle in (
            module.register_forward_pre_hook(elsewhere.enter),
            module.register_forward_hook(counting(path, count), with_kwargs=True),
        )
    ]
    try:
        model.eval()
        with torch.no_grad(), _without_fast_path(), elsewhere:
            forward(model)
    finally:
        for handle in handles:
            handle.remove()
    return {name: macs + elsewhere.counts.get(name, 0) for name, macs in counts.items()}


class _Products(TorchFunctionMode):
    """Counts the multiply-adds of a model's parameters, and of parts of them, in products of matrices outside of the layers that are
    counted, which say how often they are entered and left."""

    def __init__(self, names: Mapping[int, str]) -> None:
        super().__init__()
        self.names = names  # of parameters, by their identity
        self.counts: dict[str, int] = {}
        self.depth = 0

    def enter(self, *_: Any) -> None:
        self.depth += 1

    def __torch_function__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if function in PRODUCTS and not self.depth:
            first, second = [*args, *(kwargs or {}).values()][:2]
            for factor in (first, second):
                if name := self.names.get(id(factor if factor._base is None else factor._base)):
                    self.counts[name] = self.counts.get(name, 0) + found.numel() * first.shape[-1]
                    break  # A product of two weights counts once.
        return found


def masked_macs(macs: Mapping[str, int], mask: Mask) -> float:
    """Return the sum over layers of their dense multiply-adds times their density."""
    return float(sum(count * mask.densities.get(name, 1.0) for name, count in macs.items()))


def uncounted(macs: Mapping[str, int], weights: Iterable[str]) -> list[str]:
    """Return those of the weights whose multiply-adds are not known."""
    return [name for name in weights if name not in macs]


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Keep torch from computing a whole transformer layer at once, in which no hook of its parts is called."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


# -- what one call of a module multiplies -----------------------------------------------------------------------------------------

# The multiply-adds of a call by the name of the weight in the module, from the module, its arguments and its output.
Count = Callable[[Any, tuple[Any, ...], Mapping[str, Any], Any], dict[str, int]]
RECURRENT = (nn.RNN, nn.LSTM, nn.GRU, nn.RNNCell, nn.LSTMCell, nn.GRUCell)


def _count_for(module: nn.Module) -> Count | None:
    """Return the function that counts for such a module; None where its multiply-adds are not known. Recurrent layers and attention call
    no modules that could be counted, so that their count is known only if they have torch's own forward pass."""
    if isinstance(module, (nn.modules.conv._ConvNd, nn.Linear)) or is_turned_linear(module):
        return _layer
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return lambda *_: {"weight": 0}  # Its rows are looked up, not multiplied.
    if any(isinstance(module, kind) and type(module).forward is kind.forward for kind in RECURRENT):
        return _recurrent
    if isinstance(module, nn.MultiheadAttention) and type(module).forward is nn.MultiheadAttention.forward:
        return _attention
    return None


def is_turned_linear(module: nn.Module) -> bool:
    """Return whether a module is the `Conv1D` that GPT-2 in transformers is made of: a linear layer whose weight is inputs × outputs."""
    return any((kind.__module__, kind.__name__) == ("transformers.pytorch_utils", "Conv1D") for kind in type(module).__mro__)


def _layer(module: Any, inputs: tuple[Any, ...], named: Mapping[str, Any], output: Tensor) -> dict[str, int]:
    """Each weight is multiplied once for every output position (in a transposed convolution, for every input position)."""
    weight = module.weight
    positions = _argument(0, "input", inputs, named) if getattr(module, "transposed", False) else output
    return {"weight": positions.numel() // weight.shape[1 if is_turned_linear(module) else 0] * weight.numel()}


def _recurrent(module: Any, inputs: tuple[Any, ...], named: Mapping[str, Any], output: Any) -> dict[str, int]:
    """Each weight is multiplied once for every time step, in every layer and direction."""
    given = _argument(0, "input", inputs, named)
    steps = (given.data if isinstance(given, PackedSequence) else given).numel() // module.input_size
    names = getattr(module, "_flat_weights_names", ("weight_ih", "weight_hh"))  # A cell has no list of its weights.
    return {name: steps * getattr(module, name).numel() for name in names if name.startswith("weight")}


def _attention(module: Any, inputs: tuple[Any, ...], named: Mapping[str, Any], output: Any) -> dict[str, int]:
    """Each weight is multiplied once for every query, key or value. The output layer is used, but not called."""
    widths = {"query": module.embed_dim, "key": module.kdim, "value": module.vdim}
    given = [(_argument(index, name, inputs, named), width) for index, (name, width) in enumerate(widths.items())]
    queries, keys, values = (tensor.numel() * module.embed_dim for tensor, width in given)
    out = {"out_proj.weight": queries}
    if module.in_proj_weight is not None:
        return out | {"in_proj_weight": queries + keys + values}
    return out | {"q_proj_weight": queries, "k_proj_weight": keys, "v_proj_weight": values}


def _argument(index: int, name: str, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    return inputs[index] if len(inputs) > index else named[name]
