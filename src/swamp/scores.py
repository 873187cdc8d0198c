"""Scores say how much each weight is worth to a pruning method. They are pure functions of any model.

Each takes the names of the weights to score and does not change the model, buffers included. A score is a tensor of the weight's shape.

    scores = swamp.scores.snip(model, lambda model: F.cross_entropy(model(x), y), ["conv1.weight", "conv2.weight"])
    mask = keep_highest(scores, Mask.ones({name: score.shape for name, score in scores.items()}), num_keep=1000)

Random pruning scores no weights: `uniform_counts` and `erk_counts` say how many weights each layer keeps, and `random_mask` chooses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from swamp.core.allocation import Allocation, Shapes, erk_counts, uniform_counts
from swamp.core.coupling import Coupling
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.pruning import keep_highest
from swamp.core.state import call_with_tensors

__all__ = ["erk_counts", "grasp", "random_mask", "snip", "synflow", "synflow_mask", "uniform_counts"]

SampleLoss = Callable[[nn.Module], Tensor]  # of a model on a fixed sample of the training set


def snip(model: nn.Module, loss: SampleLoss, names: Sequence[str]) -> dict[str, Tensor]:
    """Return |w ∂L/∂w| / Σ |w ∂L/∂w| (Lee et al. 2019): to first order, how much the loss changes without a weight. Keep the highest."""
    weights, evaluate = _copied_weights(model, names)
    gradients = _gradients(evaluate(loss), list(weights.values()))
    raw = {name: (weight.detach() * gradient).abs() for (name, weight), gradient in zip(weights.items(), gradients, strict=True)}
    total = sum(float(score.sum(dtype=torch.float64)) for score in raw.values())
    return {name: score / total for name, score in raw.items()} if total else raw


def grasp(model: nn.Module, losses: Sequence[SampleLoss], names: Sequence[str]) -> dict[str, Tensor]:
    """Return −w ∘ H g (Wang et al. 2020), where g = Σ ∇L and H = Σ ∇²L over the losses of parts of a sample: to first order, how much
    the gradient's norm grows without a weight. *Remove* the highest.

    H g is the gradient of g·∇L with g held constant, so the Hessian is never formed.
    """
    weights, evaluate = _copied_weights(model, names)
    points = list(weights.values())
    g = [torch.zeros_like(point) for point in points]
    products = [torch.zeros_like(point) for point in points]
    with sdpa_kernel(SDPBackend.MATH):  # The fused kernels of attention have no second derivative.
        for loss in losses:
            for total, part in zip(g, _gradients(evaluate(loss), points), strict=True):
                total += part
        for loss in losses:
            slopes = _gradients(evaluate(loss), points, create_graph=True)
            inner = torch.stack([(constant * slope).sum() for constant, slope in zip(g, slopes, strict=True)]).sum()
            if inner.requires_grad:  # A loss that is linear in the weights has no curvature.
                for total, part in zip(products, _gradients(inner, points), strict=True):
                    total += part
    return {name: -weight.detach() * product for (name, weight), product in zip(weights.items(), products, strict=True)}


def synflow(model: nn.Module, outputs: Callable[[nn.Module], Tensor], mask: Mask) -> dict[str, Tensor]:
    """Return | |θ| ∂R/∂|θ| | with R = Σ outputs (Tanaka et al. 2020), in the masked network with all parameters replaced by their
    absolute values. No data are needed. Keep the highest.

    `outputs(model)` runs the model on an input of ones. The parameters are in float64, because the flow through deep networks leaves the
    range of float32. The model should be in eval mode, in which fresh BatchNorm layers change nothing.
    """
    parameters = {name: parameter.detach().double().abs() for name, parameter in model.named_parameters()}
    for name, layer in mask.layers.items():
        parameters[name] = (parameters[name] * layer.to(parameters[name].device)).requires_grad_()
    buffers = {name: buffer.double() if buffer.is_floating_point() else buffer for name, buffer in model.named_buffers()}
    weights = [parameters[name] for name in mask.layers]
    gradients = _gradients(call_with_tensors(model, {**parameters, **buffers}, outputs).sum(), weights)
    # Layers that subtract, such as LayerNorm, can make the flow negative.
    return {name: (weight.detach() * gradient).abs() for name, weight, gradient in zip(mask.layers, weights, gradients, strict=True)}


def synflow_mask(
    model: nn.Module,
    outputs: Callable[[nn.Module], Tensor],
    mask: Mask,
    num_keep: int,
    num_iterations: int = 100,
    pattern: str = "unstructured",
    allocation: Allocation = "global",
    coupling: Coupling | None = None,
) -> Mask:
    """Prune to `num_keep` weights in K iterations, to the density ρ^(k/K) in the kth, with new scores each time. A single iteration would
    remove whole layers."""
    density = Fraction(num_keep, mask.num_weights)
    for iteration in range(1, num_iterations + 1):
        share = math.exp(math.log(density) * iteration / num_iterations) if density else 0.0
        kept = num_keep if iteration == num_iterations else max(math.floor(mask.num_weights * share + 0.5), num_keep)
        mask = keep_highest(synflow(model, outputs, mask), mask, min(kept, mask.num_survivors), pattern, allocation, coupling)
    return mask


def _copied_weights(model: nn.Module, names: Sequence[str]) -> tuple[dict[str, Tensor], Callable[[SampleLoss], Tensor]]:
    """Return copies of the named weights to differentiate by, and a function that evaluates a loss with them. It also uses copies of the
    buffers, so that the model stays as it is."""
    parameters = dict(model.named_parameters())
    weights = {name: parameters[name].detach().clone().requires_grad_() for name in names}
    tensors = {**weights, **{name: buffer.clone() for name, buffer in model.named_buffers()}}
    return weights, lambda loss: call_with_tensors(model, tensors, loss)


def _gradients(value: Tensor, points: Sequence[Tensor], *, create_graph: bool = False) -> list[Tensor]:
    """Return the gradients of a value, which are zero by tensors that it does not depend on."""
    return list(torch.autograd.grad(value, points, create_graph=create_graph, allow_unused=True, materialize_grads=True))


def random_mask(shapes: Shapes, counts: Mapping[str, int], noise: Noise) -> Mask:
    """Return a random mask with the given number of weights in each layer."""

    def layer(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        chosen = torch.zeros(math.prod(shape), dtype=torch.bool)
        chosen[torch.randperm(len(chosen), generator=noise.fold(name).generator())[: counts[name]]] = True
        return chosen.reshape(shape)

    return Mask({name: layer(name, shape) for name, shape in shapes.items()})
