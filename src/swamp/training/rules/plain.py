"""Plain masked training, and the methods that a rule overrides to differ from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from swamp.core.mask import Mask
from swamp.tasks.task import Batch
from swamp.training.step import StepFunctions

if TYPE_CHECKING:
    from swamp.training.learner import Learner


class PlainTraining:
    """Plain masked training. A rule has no tensors of its own, only the learner's, so that a captured step serves every job of the rule."""

    moves_mask = False
    rounds_weights = True  # whether the model may use bf16 copies of its weights

    def __init__(self, rule: Any = None) -> None:
        self.rule = rule

    def network(self, model: nn.Module, prunable: Mapping[str, tuple[int, ...]]) -> nn.Module:
        """Return the network that the loss is computed with. Parameters that it adds to the model's are learnt too."""
        return model

    def gradient(self, learner: Learner, batch: Batch, functions: StepFunctions) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Return the loss and the gradient for the optimizer. It uses only tensor operations, so that it can be captured."""
        return learner.gradient(batch, functions)

    def acts(self, step: int, num_steps: int) -> bool:
        """Return whether `act` is to be called before that step, or instead of it."""
        return False

    def act(self, learner: Learner, batch: Callable[[], Batch], step: int, num_steps: int) -> Tensor | None:
        """Change the learner from the host. Return the loss if this replaces the step, and else None."""
        raise NotImplementedError

    def measured(self, learner: Learner) -> dict[str, float]:
        """Return what the record of an epoch has beside its loss, rate and sparsity."""
        return {}

    def mask(self, learner: Learner) -> Mask:
        """Return the current mask."""
        return Mask({name: factor.bool().cpu() for name, factor in learner.factors.items()})
