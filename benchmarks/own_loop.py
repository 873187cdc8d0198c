"""What masks cost in a loop of one's own: a step with the hooks of `swamp.masked` against one without, in one process and in turn.

python benchmarks/own_loop.py [--device cpu] [--batch 128] [--rounds 20]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch.nn import functional as F

import swamp
from swamp.core.mask import Mask
from swamp.tasks.models import find_model
from swamp.tasks.prunable import prunable_weights

STEPS = 5  # that are timed with and without masks in each round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    torch.manual_seed(0)
    model = find_model("wrn28-2")(3, 10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    inputs, targets = torch.randn(arguments.batch, 3, 32, 32, device=device), torch.randint(10, (arguments.batch,), device=device)
    mask = Mask({name: torch.rand(shape) < 0.1 for name, shape in prunable_weights(model, ["conv"]).items()})

    def steps() -> float:
        step()  # The first one after a change makes masks or frees them.
        return sum(step() for _ in range(STEPS))

    def step() -> float:
        begin = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    ratios = []
    for round_number in range(arguments.rounds + 1):
        without = steps()
        with swamp.masked(model, mask):
            with_hooks = steps()
        if round_number:  # The first round warms up.
            ratios.append(with_hooks / without)
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"{device}, batch {arguments.batch}: a step with masks takes {middle:.3f} of one without (quartiles {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
