"""SynFlow (Tanaka et al. 2020): how much of the flow through the network of absolute values passes a weight. No data are needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from torch import Tensor, nn

from swamp.core.mask import Mask
from swamp.core.pruning import keep_highest
from swamp.core.state import call_with_tensors
from swamp.scores.snip import gradients_of


def synflow(model: nn.Module, outputs: Callable[[nn.Module], Tensor], mask: Mask) -> dict[str, Tensor]:
    """| |θ| ∂R/∂|θ| | with R = Σ outputs, in the masked network whose parameters are all replaced by their absolute values.

    `outputs(model)` runs the model on an input of ones, in float64: flows of deep networks leave the range of float32. The model is
    seen in float64 and should be in eval mode, in which fresh BatchNorm layers pass on what they get.
    """
    parameters = {name: parameter.detach().double().abs() for name, parameter in model.named_parameters()}
    for name, layer in mask.layers.items():
        parameters[name] = (parameters[name] * layer.to(parameters[name].device)).requires_grad_()
    buffers = {name: buffer.double() if buffer.is_floating_point() else buffer for name, buffer in model.named_buffers()}
    weights = [parameters[name] for name in mask.layers]
    gradients = gradients_of(call_with_tensors(model, {**parameters, **buffers}, outputs).sum(), weights)
    # layers that subtract (LayerNorm) can make flow negative
    return {name: (weight.detach() * gradient).abs() for name, weight, gradient in zip(mask.layers, weights, gradients, strict=True)}


def synflow_mask(
    model: nn.Module,
    outputs: Callable[[nn.Module], Tensor],
    mask: Mask,
    num_keep: int,
    num_iterations: int = 100,
    pattern: str = "unstructured",
) -> Mask:
    """Prune to `num_keep` weights in iterations of density ρ^(k/K), scoring anew before each: one step would cut whole layers off."""
    density = Fraction(num_keep, mask.num_weights)
    for iteration in range(1, num_iterations + 1):
        share = math.exp(math.log(density) * iteration / num_iterations) if density else 0.0
        kept = num_keep if iteration == num_iterations else max(math.floor(mask.num_weights * share + 0.5), num_keep)
        mask = keep_highest(synflow(model, outputs, mask), mask, min(kept, mask.num_survivors), pattern)
    return mask
