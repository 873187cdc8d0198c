"""Single-shot network pruning (Lee et al. 2019).

s ← |w_0 ∘ ∇L(w_0; D_b)| / Σ        on one mini-batch D_b, before any training
m ← the k highest s, over all layers
w ← SGD(w_0 ∘ m)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta
from torch import nn

from swamp.core.mask import Mask
from swamp.core.pruning import keep_highest
from swamp.methods.method import Context, Row
from swamp.methods.targets import OneShotConfig, chosen_masks, train_targets
from swamp.scores import snip
from swamp.tasks.sampling import balanced_sample, mean_loss, random_sample

name = "snip"
paper = "Lee et al. 2019, SNIP: single-shot network pruning based on connection sensitivity"
summary = "Before training, keep the weights whose removal would change the loss most; then train once."
cost = "2 sparse trainings a row"
exact = True
nested = True  # one ranking serves all sparsities
uses = ("loss",)
notes = (
    "BatchNorm is in training mode while scoring, and its statistics are left alone. Each training is two cycles long with the optimizer "
    "and schedule of the recipe, as for all methods that prune once."
)


class Config(OneShotConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sample that is scored on."""

    examples: Annotated[int, Meta(ge=1, le=100_000_000, description="Size of the mini-batch.")] = 128
    balanced: Annotated[bool, Meta(description="Take the same number of examples of each class, where the number of classes is known.")] = (
        False
    )


def run(ctx: Context, config: Config) -> Iterator[Row]:
    noise = ctx.noise.fold("score")

    def choice(model: nn.Module, mask: Mask, num_keep: int) -> Mask:
        device = next(model.parameters()).device
        if config.balanced and ctx.task.num_classes:
            batches = balanced_sample(ctx.task, noise, max(config.examples // ctx.task.num_classes, 1), device)
        else:
            batches = random_sample(ctx.task, noise, config.examples, device)
        scores = snip(model.train(), lambda view: mean_loss(ctx.task, view, batches), list(mask.layers))
        return keep_highest(scores, mask, num_keep, **ctx.ranking)

    return train_targets(ctx, config.length, chosen_masks(ctx, name, config, choice))
