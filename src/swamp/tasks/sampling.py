"""Small samples of the training data, augmented as in training, and the losses and outputs on them that scores need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.core.noise import Noise
from swamp.tasks.objectives import IGNORED, logits_in
from swamp.tasks.task import Batch, Task, num_examples, take_rows


def random_sample(task: Task, noise: Noise, count: int, device: torch.device) -> list[Batch]:
    """Return `count` examples, or all if there are fewer, in one batch where their shapes allow it."""
    parts: list[Batch] = []
    for batch in _batches(task, noise, device):
        parts.append(take_rows(batch, slice(0, count - sum(map(num_examples, parts)))))
        if sum(map(num_examples, parts)) == count:
            break
    return joined(parts)


def balanced_sample(task: Task, noise: Noise, per_class: int, device: torch.device) -> list[Batch]:
    """Return the first `per_class` examples of each class. A task without classes gives ten times as many random examples."""
    seen: Counter[int] = Counter()
    parts: list[Batch] = []
    for batch in _batches(task, noise, device):
        labels = task.labels(batch)
        if labels is None:
            return random_sample(task, noise, 10 * per_class, device)
        wanted = []
        for index, label in enumerate(labels.tolist()):
            if seen[label] < per_class and label != IGNORED:
                seen[label] += 1
                wanted.append(index)
        if wanted:
            parts.append(take_rows(batch, torch.tensor(wanted, device=labels.device)))
        if task.num_classes == sum(count == per_class for count in seen.values()):
            break
    return joined(parts)


def in_class_order(task: Task, batch: Batch) -> Batch:
    """Return the batch with its examples in the order of their classes, those of one class as they were; without classes as it is."""
    labels = task.labels(batch)
    return batch if labels is None else take_rows(batch, labels.argsort(stable=True))


def joined(parts: list[Batch]) -> list[Batch]:
    """Return one batch of all parts if their examples have one shape, and else the parts as they are."""
    leaves = [pytree.tree_leaves(part) for part in parts]
    shapes = {tuple(leaf.shape[1:] if isinstance(leaf, Tensor) else None for leaf in row) for row in leaves}
    if len(parts) < 2 or len(shapes) > 1 or not all(isinstance(leaf, Tensor) for row in leaves for leaf in row):
        return parts
    structure = pytree.tree_flatten(parts[0])[1]
    return [pytree.tree_unflatten([torch.cat(column) for column in zip(*leaves, strict=True)], structure)]


def _batches(task: Task, noise: Noise, device: torch.device) -> Iterator[Batch]:
    plan = task.plan(noise.fold("sample"), 0, device)
    return (task.batch(plan, step) for step in range(task.steps_per_epoch))


def mean_loss(task: Task, model: nn.Module, batches: list[Batch]) -> Tensor:
    """Return the mean loss over the examples of all batches."""
    sizes = [num_examples(batch) for batch in batches]
    return torch.stack([task.loss(model, batch) * (size / sum(sizes)) for batch, size in zip(batches, sizes, strict=True)]).sum()


@contextmanager
def tempered(model: nn.Module, temperature: float) -> Iterator[None]:
    """Divide the logits that the model returns by a temperature. A loss that the model computes itself is not affected."""
    hook = model.register_forward_hook(lambda module, inputs, outputs: with_logits(outputs, lambda logits: logits / temperature))
    try:
        yield
    finally:
        hook.remove()


def outputs_on_ones(task: Task, model: nn.Module, example: Batch) -> Tensor:
    """Return the model's outputs for ones in the shape of an example, in float64. The task's loss runs it, because only it knows how."""
    found: list[Tensor] = []

    def ones(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return torch.ones_like(leaf, dtype=torch.float64 if leaf.is_floating_point() else leaf.dtype)

    hooks = [
        model.register_forward_pre_hook(lambda module, inputs, named: pytree.tree_map(ones, (inputs, named)), with_kwargs=True),
        model.register_forward_hook(lambda module, inputs, outputs: with_logits(outputs, lambda logits: found.append(logits) or logits)),  # type: ignore[func-returns-value]
    ]
    try:
        task.loss(model, example)
    finally:
        for hook in hooks:
            hook.remove()
    if not found:
        raise ValueError("this task's loss never calls the model as a whole, only its parts, so no outputs can be looked at")
    return found[0]


def with_logits(outputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return what a model returned (a tensor, or an object, dict or tuple that has them) with its logits changed."""
    if isinstance(outputs, Tensor):
        return change(outputs)
    if hasattr(outputs, "logits"):
        outputs.logits = change(outputs.logits)
        return outputs
    logits = logits_in(outputs)
    changed = change(logits)
    if isinstance(outputs, Mapping):
        return {name: changed if value is logits else value for name, value in outputs.items()}
    return type(outputs)(changed if value is logits else value for value in outputs)
