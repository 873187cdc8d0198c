"""The Hessian H = ∇²L of the mean training loss, without weight decay, over the surviving weights.

    products   H v = ∂∇L(w + t v)/∂t = ∇(v · ∇L), without forming H: the gradient is differentiated forwards, or its product with v
               backwards. In pruned coordinates v and the product are zero.
    trace      tr H ≈ Σ vᵢᵀ H vᵢ / n with random signs vᵢ (Hutchinson); its standard error is that of a mean.
    spectrum   Lanczos: H Q ≈ Q T from a start q₁, where every new vector is made orthogonal to all earlier ones. The eigenvalues θ of T
               approach the outermost of H; the squared first entries τ² of T's eigenvectors are quadrature weights, so that the density
               of eigenvalues is ≈ Σ τ² δ(λ − θ), averaged over random starts (stochastic Lanczos quadrature).

Loss and products are computed in float32, whatever precision trained the network. BatchNorm is in evaluation mode with the solution's
statistics, so that the loss is a function of the weights alone.
"""

from __future__ import annotations

import logging
import math
import statistics
import warnings
from collections.abc import Callable, Iterable, Sequence

import torch
from msgspec import Struct
from torch import Tensor
from torch.func import grad, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from swamp.core.errors import reason_of
from swamp.core.job import Numerics
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.state import State, call_with_tensors
from swamp.tasks.task import Batch, Task, num_examples
from swamp.training.numerics import applied
from swamp.training.step import split_batch

# Devices on which the gradient is differentiated forwards. Backwards, the gradient of a convolution becomes a convolution with a kernel as
# large as an image, for which GPUs have no good algorithm. On a CPU that costs nothing, and the gradient is computed once for all vectors.
FORWARDS_ON = ("cuda",)

log = logging.getLogger("swamp")
Operator = Callable[[Tensor], Tensor]  # maps rows of vectors to rows of their products with a symmetric matrix


class Hessian:
    """The Hessian of a solution as an operator. Vectors are flat: the trainable parameters in order, without pruned coordinates."""

    def __init__(self, task: Task, state: State, mask: Mask, batches: Sequence[Batch], device: torch.device, numerics: Numerics) -> None:
        self.task, self.batches, self.numerics = task, list(batches), numerics
        self.model = task.model().to(device)
        state.into(self.model)
        self.model.eval()
        named = {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        self.parameters = list(named.values())
        self.names = list(named)
        self.forwards = device.type in FORWARDS_ON
        layers = [
            mask.layers[name].to(device) if name in mask.layers else torch.ones_like(p, dtype=torch.bool) for name, p in named.items()
        ]
        self.alive = torch.cat([layer.reshape(-1) for layer in layers])
        self.size = int(self.alive.sum())
        self.total = sum(num_examples(batch) for batch in batches)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Return H v for each row v."""
        full = torch.zeros(len(vectors), len(self.alive), device=self.alive.device)
        full[:, self.alive] = vectors.to(full)
        products = torch.zeros_like(full)
        # Fused attention kernels have no second derivative.
        with applied(self.numerics), sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
            done = 0
            while done < len(self.batches):
                batch = self.batches[done]
                try:
                    # One operation adds the batch's share, so that running out of memory adds nothing.
                    products.add_(self._products(batch, full), alpha=num_examples(batch) / self.total)
                except torch.OutOfMemoryError:
                    if num_examples(batch) == 1:
                        raise
                    self.batches[done : done + 1] = split_batch(batch, 2)  # kept, since the next call would run out of memory too
                else:
                    done += 1
        return products[:, self.alive]

    def _products(self, batch: Batch, vectors: Tensor) -> Tensor:
        if self.forwards:
            try:
                return self._forward(batch, vectors)
            except RuntimeError as error:
                # Out of memory inside one of torch's scripted rules is reported as an error of the script.
                if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
                    raise torch.OutOfMemoryError(str(error)) from None
                self.forwards = False
                log.warning(f"the gradient of this model cannot be differentiated forwards ({reason_of(error)}); products take longer")
        return self._backward(batch, vectors)

    def _forward(self, batch: Batch, vectors: Tensor) -> Tensor:
        """Return the directional derivative of the gradient along each row."""
        slopes = grad(lambda parameters: call_with_tensors(self.model, parameters, lambda model: self.task.loss(model, batch)))
        at = dict(zip(self.names, (p.detach() for p in self.parameters), strict=True))
        along = (dict(zip(self.names, self._unflattened(row), strict=True)) for row in vectors)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch warns of its own scripted rules
            return torch.stack([_flat(jvp(slopes, (at,), (tangents,))[1].values()) for tangents in along])

    def _backward(self, batch: Batch, vectors: Tensor) -> Tensor:
        """Compute the gradient once, with its graph, and differentiate its product with each row."""
        slopes = torch.autograd.grad(
            self.task.loss(self.model, batch), self.parameters, create_graph=True, materialize_grads=True, allow_unused=True
        )
        # Where the loss is linear in a parameter, its gradient is constant and cannot be differentiated.
        moving = [index for index, slope in enumerate(slopes) if slope.requires_grad]
        products = []
        for row in vectors:
            tensors = self._unflattened(row)
            found = torch.autograd.grad(
                [slopes[i] for i in moving],
                self.parameters,
                [tensors[i] for i in moving],
                retain_graph=True,
                materialize_grads=True,
                allow_unused=True,
            )
            products.append(_flat(found))
        return torch.stack(products)

    def _unflattened(self, row: Tensor) -> list[Tensor]:
        """Split a flat vector into tensors of the parameters' shapes."""
        parts = row.split([p.numel() for p in self.parameters])
        return [part.view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def random_signs(noise: Noise, size: int) -> Tensor:
    """Draw a Rademacher vector, on the CPU so that it is the same on every device."""
    return torch.randint(0, 2, (size,), generator=noise.generator(), dtype=torch.int8).float() * 2 - 1


def probe_traces(operator: Operator, size: int, noise: Noise, first: int, count: int) -> list[float]:
    """Return vᵀ H v of the probes numbered first, …, first + count − 1. Each is an unbiased estimate of the trace."""
    probes = torch.stack([random_signs(noise.fold("probe", index), size) for index in range(first, first + count)])
    products = operator(probes)
    return [float(value) for value in (probes.to(products).double() * products.double()).sum(1)]


class TraceEstimate(Struct, frozen=True, kw_only=True):
    """An estimate of tr H."""

    mean: float
    standard_error: float
    num_probes: int
    converged: bool  # whether the standard error reached the tolerance


def trace_of(chunks: Iterable[list[float]], tolerance: float, least: int = 30) -> TraceEstimate:
    """Average probes, chunk by chunk, until the standard error is below tolerance × |mean| or there are no more. At least `least` probes
    are taken, because a few of them sometimes agree by chance."""
    values: list[float] = []
    error, converged = math.inf, False
    for chunk in chunks:
        values += chunk
        if len(values) >= 2:
            error = statistics.stdev(values) / math.sqrt(len(values))
            converged = len(values) >= least and error <= tolerance * abs(statistics.fmean(values))
        if converged:
            break
    return TraceEstimate(mean=statistics.fmean(values), standard_error=error, num_probes=len(values), converged=converged)


class Spectrum(Struct, frozen=True, kw_only=True):
    """Eigenvalue estimates of Lanczos from one random start."""

    nodes: list[float]  # θ, ascending
    weights: list[float]  # τ², which sum to 1
    residuals: list[float]  # ‖H x − θ x‖ for each θ; H has an eigenvalue within this distance


def lanczos(operator: Operator, size: int, noise: Noise, num_steps: int) -> Spectrum:
    """Return nodes and weights from one random start. It ends early when the start's Krylov space is exhausted."""
    num_steps = min(num_steps, size)
    current = random_signs(noise.fold("lanczos"), size) / math.sqrt(size)
    basis: Tensor | None = None
    alphas: list[float] = []
    betas: list[float] = []
    for step in range(num_steps):
        product = operator(current[None])[0]
        if basis is None:
            current = current.to(product)
            basis = product.new_zeros(num_steps, size)
        basis[step] = current
        alphas.append(float(current.double() @ product.double()))
        known = basis[: step + 1]
        for _ in range(2):  # twice, because rounding errors of a single pass grow into spurious copies of eigenvalues
            product = product - known.T @ (known @ product)
        betas.append(float(product.double().norm()))
        if betas[-1] <= 1e-6 * max(map(abs, alphas)):
            break
        current = product / betas[-1]
    off = torch.tensor(betas[:-1], dtype=torch.float64)
    nodes, vectors = torch.linalg.eigh(torch.diag(torch.tensor(alphas, dtype=torch.float64)) + torch.diag(off, 1) + torch.diag(off, -1))
    return Spectrum(nodes=nodes.tolist(), weights=vectors[0].square().tolist(), residuals=(betas[-1] * vectors[-1].abs()).tolist())


def spectral_density(spectra: Sequence[Spectrum], at: Tensor, width: float) -> Tensor:
    """Return the smoothed density of eigenvalues at the values `at`: Σ τ² N(λ; θ, width²), averaged over starts. It integrates to 1."""
    total = torch.zeros_like(at, dtype=torch.float64)
    for spectrum in spectra:
        nodes, weights = torch.tensor(spectrum.nodes, dtype=torch.float64), torch.tensor(spectrum.weights, dtype=torch.float64)
        bumps = torch.exp(-0.5 * ((at.double()[:, None] - nodes) / width) ** 2) / (width * math.sqrt(2 * math.pi))
        total += bumps @ weights
    return total / len(spectra)
