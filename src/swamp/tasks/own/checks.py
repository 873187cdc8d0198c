"""Checks a user's own task before anything is trained, so that a mistake is reported at once and in one sentence."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from swamp.core.errors import reason_of
from swamp.core.noise import Noise
from swamp.tasks.objectives import IGNORED, find_objective, logits_in, shape_text
from swamp.tasks.own.criterion import Criterion
from swamp.tasks.own.remarks import custom_remarks
from swamp.tasks.prunable import computed_weights
from swamp.tasks.task import Batch
from swamp.tasks.user_code import UserCodeError, saying_whose, seeded_everywhere, takes_labels

if TYPE_CHECKING:
    from swamp.tasks.custom import CustomTask

NUM_PAIRS = 16  # the examples whose outputs and targets are compared
MISTAKES = (IndexError, RuntimeError, TypeError, ValueError)  # what torch raises for data that do not fit


def check_task(task: CustomTask, model: nn.Module) -> tuple[str, ...]:
    """Pass one batch through model, loss and metric, and return remarks on what the user may not expect."""
    check_weights(model, task.prunable)
    if model.eval() is not model:
        raise ValueError(
            f"the train method of {type(model).__name__} returns nothing, and that of torch the module: end it with `return self`"
        )
    criterion, batch = task.criterion, task.examples["train"].first()
    criterion.takes_labels = takes_labels(model)
    returned, targets, broadcast = None, None, False
    if criterion.takes_model:
        with refusing("the model and the loss", "training"):
            loss = criterion.loss(model.eval(), batch)
    else:
        with refusing("the model and the loss", "training"):
            returned, targets = criterion.returned(model.eval(), batch)  # All checks of outputs look at these.
        broadcast = are_broadcast(returned, targets)
        if broadcast and criterion.given is not None:
            check_pairs(task, model, "train", "loss", lambda *pair: {"loss": float(criterion.loss_of(*pair))})
        with refusing("the model and the loss", "training"):
            if criterion.given is None:
                criterion.objective = find_objective(returned, targets)
                check_labels(task)
            loss = criterion.loss_of(returned, targets)
    if not isinstance(loss, Tensor) or loss.ndim or not loss.requires_grad:
        raise ValueError("the loss must be one number that depends on the model's parameters, such as a mean over the batch")
    if not math.isfinite(loss.item()):
        raise ValueError(f"the loss of the untrained model is {loss.item()}")
    criterion.takes_derivatives = takes_derivatives(criterion, model, batch)
    if criterion.given is not None and task.batch_size > 1:
        check_mean(task, model, loss.item(), returned, targets)
    if task.own_optimizer:
        with saying_whose():
            task.own_optimizer.check(task.model())
    if task.given_metric is not None and (broadcast or criterion.takes_model):
        check_pairs(task, model, "test", "metric", lambda *pair: task.measurement.of_pairs([pair], len(pair[1])))
    with refusing("the metric", "test"):
        _ = task.metric
    check_batches_of_one(task)
    with saying_whose():
        return tuple(custom_remarks(task, model, loss, returned))


@contextmanager
def refusing(what: str, split: str) -> Iterator[None]:
    """Name the split in the error about a batch that the model, the loss or the metric cannot take."""
    try:
        some = "two examples" if split == "training" else "a batch"  # so that a model for batches of one size is seen to be one
        with saying_whose(f" (for {some} of the {split} data)"):
            yield
    except UserCodeError:
        raise
    except MISTAKES as error:
        raise ValueError(f"{what} cannot take a batch of the {split} data: {reason_of(error)}") from error


@torch.no_grad()
def takes_derivatives(criterion: Criterion, model: nn.Module, batch: Batch) -> bool:
    """Return whether the user's loss differentiates, as gradient penalties and physics-informed networks do, and so cannot be computed
    without gradients."""
    if not criterion.takes_model:
        return False
    try:
        criterion.loss(model, batch)
    except RuntimeError as error:
        return "require grad" in str(error)
    return False


def check_weights(model: nn.Module, prunable: Collection[str]) -> None:
    """Check that what is trained or pruned are real numbers of at least 32 bits, with dense gradients and without spectral_norm."""
    for name, parameter in model.named_parameters():
        if parameter.is_complex():
            raise ValueError(
                f"{name} is complex ({parameter.dtype}), and swamp trains real numbers: hold its real and imaginary parts in one more "
                "dimension, and use torch.view_as_complex"
            )
        if not parameter.is_floating_point() or parameter.element_size() >= 4:
            continue
        if name in prunable and not parameter.requires_grad:
            raise ValueError(f"{name} is frozen and of type {parameter.dtype}; give float32 weights, or exclude it from what is pruned")
        if parameter.requires_grad:
            raise ValueError(
                f"{name} is of type {parameter.dtype}, in which small steps are lost: give float32 weights (model.float()); "
                "precision='bf16' computes in bf16 with them"
            )
    for path, module in model.named_modules():
        if getattr(module, "sparse", False) is True and isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.weight.requires_grad:
            raise ValueError(f"{path or 'the model'} has sparse gradients, which swamp does not train with: leave sparse=True out")
    for weight in computed_weights(model):  # spectral_norm keeps estimates in buffers.
        if "spectral" in weight.by.lower():
            raise ValueError(
                f"{weight.name} has spectral_norm, whose estimate of the norm does not fit averaged weights; remove it ({weight.removal})"
            )


def require_functions(**given: Any) -> None:
    """Check that a loss and a metric are no class and no name, and that a loss of torch is a mean."""
    for what, value in given.items():
        if isinstance(value, type):
            raise ValueError(f"{what} = {value.__name__} is a class; give an object of it: {value.__name__}(…)")
        if isinstance(value, str):
            raise ValueError(f"{what} = {value!r} is a name; give the function itself")
        if what == "loss" and getattr(value, "reduction", "mean") == "sum":
            # Batches may be split, and the last one of an epoch is smaller: a sum would be another loss for each.
            raise ValueError(f"loss = {type(value).__name__}(reduction='sum') depends on the batch's size; take reduction='mean'")


def are_broadcast(returned: Any, targets: Tensor) -> bool:
    """Return whether outputs and targets have shapes such as N×1 and N, which torch broadcasts to N×N."""
    try:
        outputs = logits_in(returned)
    except ValueError:  # The user's own loss may take any form.
        return False
    narrow, wide = sorted((outputs.shape, targets.shape), key=len)
    return bool(wide == (*narrow, 1))


@torch.no_grad()
def check_pairs(
    task: CustomTask, model: nn.Module, split: str, what: str, function: Callable[[Tensor, Tensor], Mapping[str, float]]
) -> None:
    """Check that a loss or a metric of N outputs and N targets does not compare each of them with all others, as torch does with shapes
    such as N×1 and N. Its value then stays the same when the targets change places, and changes once both have one shape."""
    try:
        for count in (2, NUM_PAIRS):  # Targets of a few examples may be equal, and more are rarely needed.
            outputs, targets = next(iter(task.outputs(model, [task.examples[split].first(count)])))
            if not are_broadcast(outputs, targets):
                return
            narrow = min(outputs.shape, targets.shape, key=len)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Some losses of torch warn, and go on.
                given, of_one_shape = (
                    [function(outputs.reshape(mine), turned.reshape(theirs)) for turned in (targets, targets.roll(1, 0))]
                    for mine, theirs in ((outputs.shape, targets.shape), (narrow, narrow))
                )
            if _alike(*given) and not _alike(*of_one_shape):
                break
        else:
            return
    except Exception:  # It does not take these shapes, or takes no others; a batch that it cannot take is found elsewhere.
        return
    raise ValueError(
        f"the {what} gets outputs of {shape_text(outputs)} and targets of {shape_text(targets)}, and compares every output with every "
        "target, since torch broadcasts them; give both one shape, such as outputs.reshape(targets.shape)"
    )


def _alike(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return all(math.isclose(value, other[name], rel_tol=1e-4, abs_tol=1e-7) for name, value in one.items())


@torch.no_grad()
def check_mean(task: CustomTask, model: nn.Module, once: float, returned: Any, targets: Tensor | None) -> None:
    """Check that a loss is no sum over the examples, given that of a few: batches may be split, and the last one of an epoch is smaller. A
    sum is proportional to how many times these examples stand in a batch, if only about, where the model draws at random.

    The model need not run again where it `returned` one tensor with a row for each of the `targets`."""
    if abs(once) <= 1e-6:
        return

    def repeated(times: int) -> float:
        if isinstance(returned, Tensor) and targets is not None and returned.shape[:1] == targets.shape[:1] != ():
            return float(task.criterion.loss_of(torch.cat([returned] * times), torch.cat([targets] * times)))
        return float(task.loss(model, task.examples["train"].first(times=times)))

    found: list[float] = []
    try:
        for times in (2, 3, 8):
            found.append(repeated(times))
            if not math.isclose(found[-1], times * once, rel_tol=0.1):
                return
    except Exception:  # It may need examples that differ.
        return
    raise ValueError(
        f"the loss of a few examples is {once:.4g}, that of the same examples twice {found[0]:.4g}, and three times {found[1]:.4g}: a sum "
        "depends on the batch's size; divide it by the number of examples (reduction='mean')"
    )


@torch.no_grad()
def loss_is_mean(task: CustomTask) -> bool:
    """Return whether the loss of a few test examples is the mean of those of two parts. One that draws at random counts as a mean."""
    examples = task.examples["test"]
    rows = examples.spread_rows(4)
    close = partial(math.isclose, rel_tol=1e-5, abs_tol=1e-7)  # Losses of an untrained network hardly differ from one example to another.
    try:
        with seeded_everywhere(Noise(0).fold("mean")):
            model = task.model().eval()

            def of(some: Tensor) -> float:
                return float(task.loss(model, examples.take(some, Noise(0))))

            whole, parts = of(rows), rows.tensor_split([1])
            mean = sum(len(part) * of(part) for part in parts if len(part)) / len(rows)
            return close(whole, mean) or not close(whole, of(rows))
    except Exception:  # It may need several examples.
        return False


def check_batches_of_one(task: CustomTask) -> None:
    """Check that the model takes one example where there is such a batch: BatchNorm finds no variance in it, in training or always."""
    single = torch.zeros(1, dtype=torch.long)
    trained = task.num_examples % task.batch_size == 1 or task.batch_size == 1
    measured = [examples for split, examples in task.examples.items() if split != "train" and examples.sizes[-1] == 1]
    try:
        if trained:
            what, count, size, done = "an epoch", task.num_examples, task.batch_size, "trained"
            task.loss(task.model().train(), task.examples["train"].take(single, Noise(0)))
        for examples in measured:
            what, count, size, done = f"the {examples.what} data", examples.count, examples.batch_size, "measured"
            with torch.no_grad():
                task.measurement.try_on(task, task.model().eval(), examples.take(single, Noise(0)))
    except ValueError as error:
        raise ValueError(
            f"{what} of {count} examples in batches of {size} has a batch of one example, on which the model cannot be {done} "
            f"({reason_of(error)}); choose another batch_size"
        ) from error


def check_labels(task: CustomTask) -> None:
    """Check that all labels that are at hand are classes of the model, where the loss is not the user's own."""
    if task.criterion.num_classes is None:
        return
    for split, examples in task.examples.items():
        if (labels := examples.labels()) is not None:
            check_range(labels, task.criterion.num_classes, split)


def check_range(labels: Tensor, num_outputs: int, split: str) -> None:
    """Check that the labels that count are classes of the model."""
    if labels.is_floating_point() or not (counted := labels[labels != IGNORED]).numel():
        return
    low, high = int(counted.min()), int(counted.max())
    if low < 0 or high >= num_outputs:
        allowed = f"{num_outputs} outputs: 0 to {num_outputs - 1}" if num_outputs > 1 else "one output: give bool targets for yes or no"
        raise ValueError(f"labels of the {split} data go from {low} to {high}, but the model has {allowed}")


def require_makers(**given: Any) -> None:
    """Check that what makes an optimizer and a scheduler can be called."""
    for name, value in given.items():
        if value is not None and not callable(value):
            if isinstance(value, torch.optim.Optimizer):
                made = f"lambda parameters: torch.optim.{type(value).__name__}(parameters, …)"
                raise ValueError(f"{name} holds the parameters of one model, and each training has its own: give a function, {name}={made}")
            table = f'; the settings of one that swamp knows are a table: {name}={{"name": {value!r}}}' if name == "optimizer" else ""
            advice = table if isinstance(value, str) else ""
            raise ValueError(f"{name} is a {type(value).__name__}, not a function that makes one for each training{advice}")
