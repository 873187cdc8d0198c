"""Sentences about a user's own task whose numbers may be others than the user expects. They are said before anything is trained."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.core.errors import reason_of
from swamp.core.noise import Noise
from swamp.core.state import State
from swamp.tasks.objectives import BinaryCrossEntropy, CrossEntropy, Objective, SquaredError, logits_in, pair
from swamp.tasks.user_code import seeded_everywhere

if TYPE_CHECKING:
    from swamp.tasks.custom import CustomTask

NAMED = 4  # so many names stand in a sentence
NUM_DRAWS = 4  # of dropout and the like, with which a loss is computed twice
RESHAPING = ("Alias", "Permute", "Reshape", "Select", "Slice", "Squeeze", "Transpose", "UnsafeView", "Unsqueeze", "View")


def custom_remarks(task: CustomTask, model: nn.Module, loss: Tensor, returned: Any) -> Iterator[str]:
    """Yield sentences about a task, given a model, its loss of a batch and what it returned for it."""
    if unreached := never_reached(task, unreached_weights(model, loss, task.prunable)):
        yield (
            f"the loss does not depend on {some(unreached)}: these weights stay as they began, and are pruned and counted all the same; if "
            "the model returns several tensors, call the outputs `logits`, or give a loss(model, batch); weights inside "
            "torch.utils.checkpoint need use_reentrant=False; `exclude` leaves weights out"
        )
    if hidden := unregistered(model):
        yield (
            f"layers or parameters in a plain list, tuple or dict ({some(hidden)}) are unknown to torch, so that they are not trained, "
            "pruned or stored: hold them in nn.ModuleList, nn.ModuleDict, nn.ParameterList or nn.ParameterDict, unless that is meant"
        )
    if isinstance(given := task.criterion.given, nn.Module) and (
        own := [name for name, one in given.named_parameters() if one.requires_grad]
    ):
        yield (
            f"the loss has weights of its own ({some(own)}), which stay as they are, since only the model is trained: let the model hold "
            "and use them, or freeze them (requires_grad_(False)) if that is meant"
        )
    if isinstance(task.criterion.objective, SquaredError) and targets_are_zero_or_one(task):
        yield (
            "all targets are floats that are 0 or 1, and floats mean regression: the mean squared error is minimised; for classes give "
            "whole numbers (of one-hot rows targets.argmax(1)), for yes or no bool targets (targets.bool()), or name a loss"
        )
    if twice_normalised(task.criterion.objective, returned):
        yield (
            "the model's outputs are probabilities already, and cross-entropy takes logits, which it makes probabilities itself: leave the "
            "last softmax or sigmoid out, or give a loss of probabilities"
        )
    for examples in task.examples.values():
        if not examples.are_tensors and not examples.repeatable:
            yield (
                f"an example of the {examples.what} data is another one each time that it is read, though the random generators of torch, "
                "NumPy and Python are seeded: this run cannot be repeated to the bit; draw from these generators, not from one of the data "
                "set's own, and change no example that is kept"
            )


def unreached_weights(model: nn.Module, loss: Tensor, names: Collection[str]) -> list[str]:
    """Return those of the named weights that could be trained, but that the loss does not depend on."""
    weights = {name: parameter for name, parameter in model.named_parameters() if name in names and parameter.requires_grad}
    try:
        gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    except RuntimeError as error:
        raise ValueError(f"the loss has no gradient that can be computed: {reason_of(error)}") from error
    return [name for name, gradient in zip(weights, gradients, strict=True) if gradient is None]


def unregistered(model: nn.Module) -> list[str]:
    """Return the names of plain lists, tuples and dicts that hold weights which are no parameters of the model.

    >>> model = nn.Sequential(nn.Linear(2, 2))
    >>> model.known, model.layers = [model[0]], [nn.Linear(2, 2)]
    >>> unregistered(model)
    ['layers']
    """
    known = {id(parameter) for parameter in model.parameters()}
    found = []
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, (list, tuple, dict)) and not name.startswith("_"):
                held: list[Any] = []
                with suppress(RecursionError):  # A list may hold itself.
                    held = [part for part in pytree.tree_leaves(value) if isinstance(part, (nn.Module, nn.Parameter))]
                weights = [weight for part in held for weight in (part.parameters() if isinstance(part, nn.Module) else [part])]
                if any(id(weight) not in known for weight in weights):
                    found.append(f"{path}.{name}".lstrip("."))
    return found


def never_reached(task: CustomTask, names: Collection[str]) -> list[str]:
    """Return those of the named weights that the loss does not depend on in training mode and for more examples either. A model may use
    more of its weights in training mode, and a mixture of experts uses others for other examples."""
    if not names:
        return []
    model, examples = task.model().train(), task.examples["train"]
    try:
        return unreached_weights(model, task.loss(model, examples.take(examples.spread_rows(16), Noise(0))), names)
    except Exception:  # Training itself says what is wrong.
        return list(names)


def targets_are_zero_or_one(task: CustomTask) -> bool:
    """Return whether all targets that are at hand, or those of a few examples, are 0 or 1."""
    examples = task.examples["train"]
    found = examples.labels()
    targets = pair(examples.first(8))[1] if found is None else found
    are = (((part == 0) | (part == 1)).all() for part in targets.split(1024))  # The first part that has others ends the search.
    return all(are) and bool(targets.any())


def twice_normalised(objective: Objective | None, returned: Any) -> bool:
    """Return whether the outputs for a few examples are probabilities where swamp's own cross-entropy takes logits."""
    if not isinstance(objective, (CrossEntropy, BinaryCrossEntropy)):
        return False
    outputs = logits_in(returned)
    if outputs.min() < 0 or outputs.max() > 1:
        return False
    if isinstance(objective, BinaryCrossEntropy):  # Logits of a few examples may lie between 0 and 1 too.
        return is_sigmoid(outputs)
    sums = outputs.sum(-1 if objective.last else 1)
    return objective.num_classes > 1 and bool(torch.allclose(sums, torch.ones_like(sums), atol=1e-4))


def is_sigmoid(outputs: Tensor) -> bool:
    """Return whether a sigmoid made these outputs, but for their shape.

    >>> weight = torch.ones(2, 1, requires_grad=True)
    >>> is_sigmoid(weight.sigmoid().squeeze(1)), is_sigmoid(weight.sigmoid() * weight)
    (True, False)
    """
    node = outputs.grad_fn
    while node is not None and node.name().startswith(RESHAPING):
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith("Sigmoid")


@torch.no_grad()
def keeps_something(task: CustomTask) -> bool:
    """Return whether the loss of the same examples, weights and random draws changes from call to call in training."""
    model = task.model()
    state, batch = State.of(model), task.examples["train"].first()

    def loss(draw: int) -> float:
        state.into(model)
        model.train()
        with seeded_everywhere(Noise(0).fold("call", draw)):
            return float(task.loss(model, copy.deepcopy(batch)))  # A model may change its inputs in place.

    try:
        # Dropout can hide what changes. It seldom does so in all of several draws.
        pairs = [(loss(draw), loss(draw)) for draw in range(NUM_DRAWS)]
    except Exception:  # Training itself says what is wrong.
        return False
    return any(math.isfinite(once) and not math.isclose(once, again, rel_tol=1e-5, abs_tol=1e-7) for once, again in pairs)


@torch.no_grad()
def moving_buffers(task: CustomTask) -> list[str]:
    """Return the names of buffers of floats that change while the model is trained, beside the running statistics of torch's norms."""
    model = task.model()
    known = {
        f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._NormBase)
        for name in module._buffers
    }
    buffers = {name: buffer for name, buffer in model.named_buffers() if name not in known and buffer.is_floating_point()}
    if not buffers:
        return []
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    try:
        with torch.random.fork_rng(devices=[]):
            task.loss(model.train(), task.examples["train"].take(torch.arange(min(4, task.examples["train"].count)), Noise(0)))
    except Exception:  # Training itself says what is wrong.
        return []
    now = dict(model.named_buffers())
    return [name for name, old in before.items() if name not in now or not torch.equal(now[name].nan_to_num(), old.nan_to_num())]


def some(names: list[str]) -> str:
    """
    >>> some(["a", "b"]), some(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c, d …')
    """
    return ", ".join(names[:NAMED]) + (" …" if len(names) > NAMED else "")
