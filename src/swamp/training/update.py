"""Computes new weights from a gradient: mask, clipping, optimizer. All engines run this code, eager, compiled or captured in a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from swamp.core.job import Optimizer

Rate = float | Tensor  # a number, or a scalar on the device, which a captured step reads at each replay
Memory = Mapping[str, list[Tensor]]  # an optimizer's state, by slot, in parameter order


class Update:
    """The update of an optimizer. It has no state of its own: all tensors that it changes are arguments.

    sgd:    v ← μ v + (g + λ w);  w ← w − η v
    adam:   m ← β₁ m + (1−β₁) g;  s ← β₂ s + (1−β₂) g²;  w ← w − η m̂ / (√ŝ + ε)      with g + λ w for g
    adamw:  the same with g alone, after w ← (1 − ηλ) w
    """

    def __init__(self, config: Optimizer, names: Sequence[str]) -> None:
        # They are plain numbers, which the compiler can read.
        self.name, self.momentum, self.clip_norm = config.name, config.momentum, config.clip_norm
        self.nesterov, self.betas, self.eps, self.weight_decay = config.nesterov, tuple(config.betas), config.eps, config.weight_decay
        self.decays = [not any(fnmatchcase(name, pattern) for pattern in config.no_decay) for name in names]

    def memory(self, weights: Sequence[Tensor]) -> dict[str, list[Tensor]]:
        """Return new slots, all zero, for these weights."""

        def zeros() -> list[Tensor]:
            return [torch.zeros_like(weight) for weight in weights]

        if self.name == "sgd":
            return {"momentum": zeros()} if self.momentum else {}
        # The count is float64, so that 1 − β₂ᵗ keeps its digits.
        return {"first": zeros(), "second": zeros(), "count": [torch.zeros((), dtype=torch.float64, device=weights[0].device)]}

    @torch.no_grad()
    def __call__(
        self,
        weights: Sequence[Tensor],
        gradients: Sequence[Tensor | None],
        factors: Sequence[Tensor | None],
        memory: Memory,
        rate: Rate,
        copies: Sequence[Tensor | None],
    ) -> None:
        """Update the weights in place, and their bf16 `copies`. `factors` are masks as numbers, None where nothing is pruned.

        The weights start masked and gradients are masked here, before anything else sees them, so that decay, momentum and update are
        all zero off the mask after every step. A weight without a gradient stays as it is, but is masked, since the model itself may
        write there, as it does where it holds an exponential average of other weights.
        """
        used = [index for index, gradient in enumerate(gradients) if gradient is not None]
        written = [(w, factor) for w, g, factor in zip(weights, gradients, factors, strict=True) if g is None and factor is not None]
        if written:
            torch._foreach_mul_([weight for weight, _ in written], [factor for _, factor in written])
        w = [weights[index] for index in used]
        g = [masked(gradients[index], factors[index]) for index in used]
        if self.clip_norm:
            g = list(torch._foreach_mul(g, (self.clip_norm / (get_total_norm(g) + 1e-6)).clamp(max=1.0)))
        decays = [self.decays[index] and self.weight_decay > 0 for index in used]
        slots = {name: [tensors[index] for index in used] for name, tensors in memory.items() if name != "count"}
        if self.name == "sgd":
            self._sgd(w, _decayed(g, w, decays, self.weight_decay), slots, rate)
        else:
            assert self.name in ("adam", "adamw")
            self._adam(w, g, decays, slots, memory["count"][0], rate)
        rounded = [(copy, weight) for copy, weight in zip(copies, weights, strict=True) if copy is not None]
        if rounded:
            torch._foreach_copy_([copy for copy, _ in rounded], [weight for _, weight in rounded])

    def _sgd(self, w: list[Tensor], g: list[Tensor], slots: Memory, rate: Rate) -> None:
        if self.momentum:
            v = slots["momentum"]
            torch._foreach_mul_(v, self.momentum)
            torch._foreach_add_(v, g)
            g = list(torch._foreach_add(g, v, alpha=self.momentum)) if self.nesterov else v
        if isinstance(rate, Tensor):
            torch._foreach_sub_(w, torch._foreach_mul(g, rate))
        else:
            torch._foreach_add_(w, g, alpha=-rate)  # It rounds once, since the rate is a plain number.

    def _adam(self, w: list[Tensor], g: list[Tensor], decays: list[bool], slots: Memory, count: Tensor, rate: Rate) -> None:
        first, second, (beta1, beta2) = slots["first"], slots["second"], self.betas
        count += 1
        if self.name == "adam":
            g = _decayed(g, w, decays, self.weight_decay)
        elif any(decays):
            shrunk = [weight for weight, decay in zip(w, decays, strict=True) if decay]
            torch._foreach_mul_(shrunk, 1.0 - rate * self.weight_decay)
        torch._foreach_lerp_(first, g, 1.0 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, g, g, value=1.0 - beta2)
        scale = (rate / (1.0 - beta1**count)).float()
        width = torch._foreach_div(torch._foreach_sqrt(second), (1.0 - beta2**count).sqrt().float())
        torch._foreach_add_(width, self.eps)
        torch._foreach_sub_(w, torch._foreach_mul(torch._foreach_div(first, width), scale))


def masked(gradient: Tensor | None, factor: Tensor | None) -> Tensor:
    """Return the masked gradient in float32. With bf16 copies of the weights, gradients are bf16."""
    assert gradient is not None
    return gradient.float() if factor is None else gradient.float() * factor


def _decayed(g: Sequence[Tensor], w: Sequence[Tensor], decays: Sequence[bool], weight_decay: float) -> list[Tensor]:
    """Return g + λ w for weights that decay, and g for the others."""
    chosen = [index for index, decay in enumerate(decays) if decay]
    out = list(g)
    if chosen:
        sums = torch._foreach_add([g[index] for index in chosen], [w[index] for index in chosen], alpha=weight_decay)
        for index, total in zip(chosen, sums, strict=True):
            out[index] = total
    return out
