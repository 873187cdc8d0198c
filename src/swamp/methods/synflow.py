"""Iterative synaptic flow pruning (Tanaka et al. 2020).

for k = 1, …, K:
    R ← Σ f(1; |w_0 ∘ m|),  s ← |w_0| ∘ ∂R/∂|w_0|       no data: the input is all ones
    m ← the D ρ^(k/K) highest s, over all layers
w ← SGD(w_0 ∘ m)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta
from torch import nn

from swamp.core.mask import Mask
from swamp.methods.method import Context, Row
from swamp.methods.targets import OneShotConfig, chosen_masks, train_targets
from swamp.scores import synflow_mask
from swamp.tasks.sampling import outputs_on_ones, random_sample

name = "synflow"
paper = "Tanaka et al. 2020, Pruning neural networks without any data by iteratively conserving synaptic flow"
summary = "Before training and without data, prune in a hundred steps by the flow through each weight; then train once."
cost = "2 sparse trainings a row"
exact = True
nested = False
uses = ("loss",)
notes = (
    "In float64 and in eval mode, where fresh BatchNorm layers pass on what they get up to their ε. Networks whose inputs are token "
    "numbers see the number one everywhere. Biases that are not zero at the init let flow in from the side, and then a layer can die."
)


class Config(OneShotConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The iterations."""

    iterations: Annotated[int, Meta(ge=1, le=100_000, description="K: steps from dense to sparse.")] = 100


def run(ctx: Context, config: Config) -> Iterator[Row]:
    noise = ctx.noise.fold("score")

    def choice(model: nn.Module, mask: Mask, num_keep: int) -> Mask:
        # Only the example's shape is used; its content is replaced by ones.
        (example,) = random_sample(ctx.task, noise, 1, next(model.parameters()).device)
        return synflow_mask(
            model.eval(), lambda view: outputs_on_ones(ctx.task, view, example), mask, num_keep, config.iterations, **ctx.ranking
        )

    return train_targets(ctx, config.length, chosen_masks(ctx, name, config, choice))
