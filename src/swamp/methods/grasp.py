"""Gradient signal preservation (Wang et al. 2020).

g ← ∇L(w_0),  s ← −w_0 ∘ H g        on a class-balanced sample, logits divided by T, before any training
m ← all but the highest s, over all layers
w ← SGD(w_0 ∘ m)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta
from torch import Tensor, nn

from swamp.core.mask import Mask
from swamp.core.pruning import keep_highest
from swamp.methods.method import Context, Row
from swamp.methods.targets import OneShotConfig, chosen_masks, train_targets
from swamp.scores import grasp
from swamp.tasks.sampling import balanced_sample, in_class_order, tempered
from swamp.training.step import split_batch

name = "grasp"
paper = "Wang et al. 2020, Picking winning tickets before training by preserving gradient flow"
summary = "Before training, remove the weights whose removal harms the gradient's norm least; then train once."
cost = "2 sparse trainings a row"
exact = True
nested = True  # one ranking serves all sparsities
uses = ("loss",)
notes = (
    "Gradients are summed over halves of the sample. The sample is in the order of its classes, as in the original code, so that each "
    'half, and BatchNorm on it, sees half of the classes; with `order = "shuffled"`, as in other implementations, each half has '
    "examples of all classes, and masks differ. H and g are taken over the prunable weights alone. A task without classes gets a "
    "random sample of ten times `per_class`. The temperature applies where the task's loss takes the model's logits, not where a model "
    "computes its loss itself."
)


class Config(OneShotConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sample that is scored on."""

    per_class: Annotated[int, Meta(ge=1, le=1_000_000, description="Examples of each class in a draw.")] = 10
    draws: Annotated[
        int,
        Meta(ge=1, le=10_000, description="Number of draws; for residual networks on CIFAR-100 2 draws of 5, for Tiny-ImageNet 10 of 1."),
    ] = 1
    order: Annotated[
        Literal["by-class", "shuffled"],
        Meta(description="Order of the sample before it is halved: by class as in the original code, or as it was drawn."),
    ] = "by-class"
    temperature: Annotated[float, Meta(gt=0, description="Logits are divided by it.")] = 200.0


def run(ctx: Context, config: Config) -> Iterator[Row]:
    noise = ctx.noise.fold("score")

    def loss(batch: object, view: nn.Module) -> Tensor:
        with tempered(view, config.temperature):
            return ctx.task.loss(view, batch)

    def choice(model: nn.Module, mask: Mask, num_keep: int) -> Mask:
        device = next(model.parameters()).device
        samples = [balanced_sample(ctx.task, draw, config.per_class, device) for draw in noise.split("draw", config.draws)]
        ordered = [in_class_order(ctx.task, batch) if config.order == "by-class" else batch for sample in samples for batch in sample]
        halves = [half for batch in ordered for half in split_batch(batch, 2)]
        losses: list[Callable[[nn.Module], Tensor]] = [partial(loss, half) for half in halves]
        scores = grasp(model.train(), losses, list(mask.layers))
        return keep_highest({name: -score for name, score in scores.items()}, mask, num_keep, **ctx.ranking)

    return train_targets(ctx, config.length, chosen_masks(ctx, name, config, choice))
