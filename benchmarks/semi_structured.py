"""2:4 networks on a GPU: the dense network, its layers as products of matrices, and the same with torch's semi-structured kernels.

    python benchmarks/semi_structured.py [--models wrn28-2 wrn28-10 resnet50] [--batches 1 64 256]

Latency follows from the pattern, not from the weights, so these are drawn and pruned 2:4 by magnitude. All in float16, channels last, as
CUDA graphs where the kernels can be captured, in turns; the median of the rounds counts. Below 1 is faster than the dense network, which
runs cuDNN's convolutions. The middle column is what copying out the windows costs.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn

from swamp.core.mask import Mask
from swamp.core.pruning import keep_highest, magnitude
from swamp.core.state import State
from swamp.export.semi_structured import semi_structured, with_matrices
from swamp.tasks.models import find_model

ROUNDS, CALLS = 15, 20
SIDES = {"resnet50": 224, "resnet18-imagenet": 224}


def two_of_four(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = find_model(name)(3, 10)
    state = State.of(model)
    mask = Mask.ones({n: tuple(t.shape) for n, t in state.parameters.items() if t.ndim == 4})
    # the stem has no four input channels and stays
    stem = next(iter(mask.layers.values())).numel()
    keep_highest(magnitude(state, mask), mask, (mask.num_weights + stem) // 2, "2:4").apply(state).into(model)
    return model.eval()


def seconds(model: nn.Module, x: Tensor) -> Callable[[], float]:
    """A measurement of one call."""

    def call() -> None:
        with torch.inference_mode():
            model(x)

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    work: Callable[[], None] = call
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        work = graph.replay
    except RuntimeError as error:
        print(f"not captured: {str(error).splitlines()[0]}")

    def measure() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(CALLS):
            work()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / CALLS / 1e3

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["wrn28-2", "wrn28-10", "resnet50"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 64, 256])
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("semi-structured kernels need an NVIDIA GPU, and torch sees none")
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    print(f"{'model':18} {'batch':>5} {'layers':>7} {'dense ms':>9} {'matrices':>9} {'2:4':>6} {'difference':>11}")
    for name in arguments.models:
        model = two_of_four(name)
        layers = sum(isinstance(module, (nn.Conv2d, nn.Linear)) for module in model.modules())
        sparse, changed = semi_structured(model)
        matrices = with_matrices(model)[0].eval().cuda().half()
        dense = model.cuda().half().to(memory_format=torch.channels_last)
        for batch in arguments.batches:
            side = SIDES.get(name, 32)
            x = torch.randn(batch, 3, side, side, device="cuda", dtype=torch.half).contiguous(memory_format=torch.channels_last)
            with torch.inference_mode():
                expected = dense(x).float()
                difference = float((sparse(x).float() - expected).abs().max() / expected.abs().max())
            measures = [seconds(one, x) for one in (dense, matrices, sparse)]
            rounds = [[measure() for measure in measures] for _ in range(ROUNDS)]
            times = [statistics.median(times) for times in zip(*rounds, strict=True)]
            ratios = f"{times[1] / times[0]:9.2f} {times[2] / times[0]:6.2f}"
            print(f"{name:18} {batch:5} {len(changed):3}/{layers:<3} {1e3 * times[0]:9.3f} {ratios} {difference:11.1e}", flush=True)


if __name__ == "__main__":
    main()
