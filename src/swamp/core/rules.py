"""Rules say, as data, how a training differs from plain masked SGD. `training/rules` implements them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from swamp.core.allocation import Allocation, Ranking, ranking
from swamp.core.coupling import Coupling
from swamp.core.schedules import half_cosine

Share = Annotated[float, Meta(ge=0, le=1)]


class SAM(Struct, frozen=True, kw_only=True, tag="sam"):
    """Sharpness-aware minimisation (Foret et al. 2021): the gradient is taken at w + ρ g/‖g‖."""

    rho: Annotated[float, Meta(ge=0)]


class RigL(Struct, frozen=True, kw_only=True, tag="rigl"):
    """RigL (Evci et al. 2020): every `interval` steps, until the share `until` of the training, each layer drops the share f_t of its
    weights with the smallest |w| and grows as many where the dense gradient is largest; f_t falls from `fraction` to 0 by a half cosine."""

    interval: Annotated[int, Meta(ge=1)]
    fraction: Share
    until: Share

    def acts(self, step: int, num_steps: int) -> bool:
        return step > 0 and step % self.interval == 0 and step < self.until * num_steps

    def never_acts(self, num_steps: int) -> bool:
        """Return whether a training of so many steps keeps the mask that it starts with."""
        return not self.acts(self.interval, num_steps)

    def drop_fraction(self, step: int, num_steps: int) -> float:
        """f_t = f/2 · (1 + cos(π t / T_end))."""
        return self.fraction * half_cosine(step / (self.until * num_steps))


class Gradual(Struct, frozen=True, kw_only=True, tag="gradual"):
    """Gradual magnitude pruning (Zhu and Gupta 2017): every `interval` steps between the shares `begin` and `end` of the training the
    smallest weights of all layers, or of each by an allocation, are pruned, so that the density falls along a cubic to `num_keep`
    weights."""

    num_keep: Annotated[int, Meta(ge=0)]
    interval: Annotated[int, Meta(ge=1)]
    begin: Share
    end: Share
    pattern: str = "unstructured"
    allocation: Allocation | UnsetType = UNSET  # Unset means global, and leaves keys as they were before there were others.
    coupling: Coupling | UnsetType = UNSET  # of the pattern `coupled`

    @property
    def ranking(self) -> Ranking:
        """How weights are ranked, as arguments of `keep_highest`."""
        coupling = None if self.coupling is UNSET else self.coupling
        return ranking(self.pattern, "global" if self.allocation is UNSET else self.allocation, coupling)

    def acts(self, step: int, num_steps: int) -> bool:
        first, last = self._window(num_steps)
        return first <= step <= last and ((step - first) % self.interval == 0 or step == last)

    def survivors(self, step: int, num_steps: int, num_weights: int) -> int:
        """Return k + (D − k)(1 − p)³, where p is the share of the window that has passed."""
        first, last = self._window(num_steps)
        left = 1 - Fraction(step - first, last - first) if last > first else Fraction(0)
        return math.floor(self.num_keep + (num_weights - self.num_keep) * left**3 + Fraction(1, 2))

    def _window(self, num_steps: int) -> tuple[int, int]:
        """Return the first and the last step at which weights are pruned; the training's last step comes after the last pruning."""
        last = min(math.floor(self.end * num_steps), num_steps - 1)
        return min(math.floor(self.begin * num_steps), last), last


class DST(Struct, frozen=True, kw_only=True, tag="dst"):
    """Dynamic sparse training (Liu et al. 2020): thresholds t, one for each output unit, are learnt beside the weights. The forward pass
    uses w · [|w| > t], the loss has α Σ exp(−t) added, and a layer whose density falls to `least_density` has its thresholds reset to 0."""

    alpha: Annotated[float, Meta(ge=0)]
    least_density: Share = 0.01


Rule = SAM | RigL | Gradual | DST


def num_gradients(rule: Rule | None) -> int:
    """Return how many gradients a step computes: SAM needs a first one to find the point at which it takes the second."""
    return 2 if isinstance(rule, SAM) else 1
