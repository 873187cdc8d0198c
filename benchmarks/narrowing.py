"""Measure what narrowing gains: latency of channel-pruned networks of CIFAR's size in torch and onnxruntime, on one thread.

    python benchmarks/narrowing.py [--sparsity 0.5] [--rounds 30] [--models wrn28-2 resnet18]

The networks are untrained, with norms that have seen something, since only their shapes decide how fast they are. Each is pruned by mean
magnitude with the patterns `channel` and `coupled:8`, and narrowed. All of them compute in turns; a time is the least processor time of the
one thread over all rounds (six of them for large batches), because other work on the machine disturbs the clock more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import swamp
from swamp.core.allocation import Allocation
from swamp.core.mask import Mask
from swamp.core.pruning import keep_highest, magnitude
from swamp.core.state import State
from swamp.export.channels.graph import find_coupling
from swamp.export.formats.onnx import OnnxNetwork, as_onnx
from swamp.export.narrow import narrowed
from swamp.tasks.models import find_model

RANKINGS: tuple[tuple[str, Allocation], ...] = (("channel", "global"), ("coupled:8", "global"), ("coupled:8", "uniform"))
BATCHES = (1, 64)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["wrn28-2", "resnet18"])
    parser.add_argument("--sparsity", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for name in given.models:
        networks = dict(_networks(name, given.sparsity))
        runtimes = {(what, "torch"): model for what, model in networks.items()}
        runtimes |= {(what, "onnxruntime"): _in_onnxruntime(model) for what, model in networks.items()}
        times = {batch: _least_times(runtimes, torch.randn(batch, 3, 32, 32), max(given.rounds // batch, 6)) for batch in BATCHES}
        print(f"{name}: network, parameters, runtime, then ms and share of the dense network at batch {', '.join(map(str, BATCHES))}")
        for what, runtime in runtimes:
            size = sum(p.numel() for p in networks[what].parameters())
            parts = [f"{1e3 * times[b][what, runtime]:.2f} {times[b][what, runtime] / times[b]['dense', runtime]:.2f}" for b in BATCHES]
            print(f"  {what:40} {size:>10,} {runtime:12} {'  '.join(parts)}")


def _networks(name: str, sparsity: float) -> Iterator[tuple[str, nn.Module]]:
    """Yield the dense network and its narrowed forms, each checked against itself before."""
    torch.manual_seed(0)
    model, x = find_model(name)(3, 10).eval(), torch.randn(2, 3, 32, 32)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.bias, -0.2, 0.8)
    yield "dense", model
    shapes = {key: tuple(parameter.shape) for key, parameter in model.named_parameters() if parameter.ndim == 4}
    coupling, _ = find_coupling(model, shapes, (x,), {})
    state, dense = State.of(model), Mask.ones(shapes)
    # The same scale in every layer: an untrained network's magnitudes tell its initialisation alone.
    scores = {key: score / score.mean() for key, score in magnitude(state, dense).items()}
    for pattern, allocation in RANKINGS:
        shared = coupling if pattern.startswith("coupled") else None
        mask = keep_highest(scores, dense, round((1 - sparsity) * dense.num_weights), pattern, allocation, shared)
        sparse = find_model(name)(3, 10).eval()
        mask.apply(state).into(sparse)
        small = narrowed(sparse, x).model
        with torch.no_grad():
            difference = float((small(x) - sparse(x)).abs().max())
        yield f"{pattern} {allocation} {100 * (1 - mask.density):.1f} %, apart {difference:.0e}", small


def _in_onnxruntime(model: nn.Module) -> nn.Module:
    data = torch.randn(4, 3, 32, 32), torch.zeros(4, dtype=torch.long)
    return OnnxNetwork(as_onnx(model, swamp.CustomTask(model, data, data), {}))


def _least_times(runtimes: dict[tuple[str, str], nn.Module], x: Tensor, rounds: int) -> dict[tuple[str, str], float]:
    least = dict.fromkeys(runtimes, float("inf"))
    with torch.inference_mode():
        for _ in range(rounds):
            for key, model in runtimes.items():
                least[key] = min(least[key], _processor_time(lambda model=model: model(x)))  # type: ignore[misc]
    return least


def _processor_time(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


if __name__ == "__main__":
    main()
