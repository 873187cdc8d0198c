"""Plain masked training, and the three places at which a rule may differ from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from swamp.core.mask import Mask
from swamp.tasks.task import Batch
from swamp.training.step import Parts

if TYPE_CHECKING:
    from swamp.training.learner import Learner


class Plain:
    """A rule has no tensors of its own: those that it moves are the learner's. So a captured step serves every job of the same rule."""

    moves_mask = False
    rounds_weights = True  # whether the model may be given bf16 copies of its weights

    def __init__(self, rule: Any = None) -> None:
        self.rule = rule

    def network(self, model: nn.Module, prunable: Mapping[str, tuple[int, ...]]) -> nn.Module:
        """What the loss is taken of. Parameters that it has beyond the model's are learnt too."""
        return model

    def gradient(self, learner: Learner, batch: Batch, parts: Parts) -> tuple[Tensor, Sequence[Tensor | None]]:
        """The loss and the gradient that the optimizer gets. Tensor operations alone, so that it can be captured."""
        return learner.gradient(batch, parts)

    def acts(self, step: int, num_steps: int) -> bool:
        """Whether anything is to be done by the host before that step, or in its place."""
        return False

    def act(self, learner: Learner, batch: Callable[[], Batch], step: int, num_steps: int) -> Tensor | None:
        """Do it; the loss, where this was in the step's place."""
        raise NotImplementedError

    def mask(self, learner: Learner) -> Mask:
        """Which weights are alive now."""
        return Mask({name: factor.bool().cpu() for name, factor in learner.factors.items()})
