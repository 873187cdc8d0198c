"""Makes copies of a user's own model, which is a module or a function that makes one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from swamp.core.errors import reason_of
from swamp.core.noise import Noise
from swamp.tasks.prunable import computed_weights
from swamp.tasks.user_code import call_factory, saying_whose, seeded_everywhere


def new_model(source: nn.Module | Callable[[], nn.Module], forward: Callable[[nn.Module], Any]) -> nn.Module:
    """Return a copy of a module, or the module that a function makes. `forward(model)` runs it on an example of the training data, from
    which lazy layers learn their sizes."""
    model = _copied(source) if isinstance(source, nn.Module) else _made(source)
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError("the model is of torch.jit, which hides the kinds of its layers: give the module that was scripted or traced")
    if _lazy(model):
        _initialise(model, forward)
    return model


def _copied(model: nn.Module) -> nn.Module:
    _require_strided(model)
    modules = set(model.modules())
    for path, module in model.named_modules():
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
            if modules & _held_modules(hook):
                raise ValueError(
                    f"a hook of {path or 'the model'} holds the model itself, so that those of a copy would act on the original: give a "
                    "function that makes the model instead"
                )
    # weight_norm and others keep computed weights as attributes. torch refuses to copy those, but they are computed anew at the next call.
    held = [value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor) and not value.is_leaf]
    try:
        return copy.deepcopy(model, {id(tensor): tensor.detach().clone() for tensor in held})
    except Exception as error:
        if _lazy(model):
            raise ValueError("the model has lazy layers and cannot be copied; call it once on an example, or give a function") from error
        raise ValueError(f"the model cannot be copied ({error}); give a function that makes it instead") from error


def _made(factory: Callable[[], nn.Module]) -> nn.Module:
    with saying_whose():
        made = call_factory(factory)
    if not isinstance(made, nn.Module):
        raise ValueError(f"the model's factory returned a {type(made).__name__}, not a module")
    _require_strided(made)
    return made


def _held_modules(hook: Any) -> set[nn.Module]:
    """Return the modules that a function's closure holds, which a copy of the function has in common with it."""
    found = set()
    for cell in getattr(hook, "__closure__", None) or ():
        with suppress(ValueError):  # A cell is empty until its variable has a value.
            if isinstance(cell.cell_contents, nn.Module):
                found.add(cell.cell_contents)
    return found


def _require_strided(model: nn.Module) -> None:
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.layout != torch.strided:
            raise ValueError(
                f"{name} is a sparse tensor, which is not stored: make it dense, or hold its indices and values as two buffers and call "
                "torch.sparse_coo_tensor in the forward pass"
            )


def without_sharing(make: Callable[[], nn.Module], forward: Callable[[nn.Module], Any]) -> Callable[[], nn.Module]:
    """Return a function whose models have no memory in common, since trainings would change each other's weights. If those of `make` have,
    as with a pretrained body from outside, they are copied. `forward(model)` runs a model on an example."""
    one, other = _made(make), _made(make)
    if drawn := _drawn_beside(one, other):
        with suppress(Exception):  # Later checks say what is wrong with the forward pass.
            ran = _copied(one).eval()
            with seeded_everywhere(Noise(0).fold("beside")):
                forward(ran)
            written = _drawn_beside(one, ran)  # such as a layer's last activations
            drawn = [name for name in drawn if name not in written]
    if drawn:
        raise ValueError(
            f"{drawn[0]} is drawn anew for each model and is neither parameter nor buffer, so that stored networks do not have it: "
            "register_buffer makes it part of the model"
        )
    return CopiedModels(make) if _memory_of(one) & _memory_of(other) else make


def _drawn_beside(one: nn.Module, other: nn.Module) -> list[str]:
    """Return the names of tensors and arrays that are no part of a model's state and differ between two models of a function."""
    computed, memory = {weight.name for weight in computed_weights(one)}, _memory_of(one)
    found = []
    for (path, module), twin in zip(one.named_modules(), other.modules(), strict=False):
        for name, value in vars(module).items():
            held, whole = vars(twin).get(name), f"{path}.{name}".lstrip(".")
            if isinstance(value, np.ndarray) and isinstance(held, np.ndarray) and value.dtype.kind in "biufc":
                is_part = False
            elif isinstance(value, Tensor) and isinstance(held, Tensor) and value.is_leaf and value.layout == torch.strided:
                is_part = whole in computed or value.is_meta or value.untyped_storage().data_ptr() in memory  # such as weight.detach()
            else:
                continue
            if not is_part and not _same(value, held):
                found.append(whole)
    return found


def _same(one: Any, other: Any) -> bool:
    """Return whether two tensors or arrays are equal, where NaN is NaN."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if isinstance(one, Tensor):
        other = other.to(one.device)
    return bool(((one == other) | ((one != one) & (other != other))).all())


class CopiedModels:
    """A function that copies the models which another function makes."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        self.make = make

    def __call__(self) -> nn.Module:
        return _copied(_made(self.make))


def _memory_of(model: nn.Module) -> set[int]:
    """Return the addresses of a model's weights and buffers. Those without values have none."""
    tensors = [tensor for tensor in [*model.parameters(), *model.buffers()] if not is_lazy(tensor) and tensor.layout == torch.strided]
    return {tensor.untyped_storage().data_ptr() for tensor in tensors} - {0}


def _initialise(model: nn.Module, forward: Callable[[nn.Module], Any]) -> None:
    """Let lazy layers learn their sizes from an example. Dropout and norms do nothing meanwhile."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            forward(model)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"the model has lazy layers, and an example of the training data cannot initialise them: {reason_of(error)}"
        ) from error
    for module, mode in training.items():
        module.training = mode
    if unused := _lazy(model):
        raise ValueError(f"{unused[0]} is lazy, and the forward pass of a training example does not initialise it; give its layer a size")


def _lazy(model: nn.Module) -> list[str]:
    """Return the names of the parameters and buffers that have no size yet."""
    return [name for name, tensor in [*model.named_parameters(), *model.named_buffers()] if is_lazy(tensor)]
