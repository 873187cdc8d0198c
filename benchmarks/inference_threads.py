"""Time sparse networks at batch 1 with one thread and with several, each in turns in one process in which no other runtime has threads.

    python benchmarks/inference_threads.py [wrn28-2 resnet18] [--sparsity 90 95 98] [--threads 2]

Networks are those of `benchmarks/inference.py`. Threads of other runtimes wait actively for a while
after a call, and would take the cores.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import swamp_runtime
from inference import int8_file, network  # the script beside this one

from swamp.drawing.tables import Table
from swamp.export.compiled import encoded
from swamp.terminal import print_table


def timed(content: bytes, x: np.ndarray, threads: int, rounds: int) -> list[list[float]]:
    """Return the sorted milliseconds of all calls, with one thread and with several."""
    models = [swamp_runtime.load_bytes(content, number) for number in (1, threads)]
    found: list[list[float]] = [[], []]
    for _ in range(rounds):
        for model, times in zip(models, found, strict=True):
            for _ in range(5):
                model(x)
            end = time.perf_counter() + 0.08
            while not times or time.perf_counter() < end:
                begin = time.perf_counter()
                model(x)
                times.append(1000 * (time.perf_counter() - begin))
    return [sorted(times) for times in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["wrn28-2", "resnet18"])
    parser.add_argument("--sparsity", type=float, nargs="+", default=[90.0, 95.0, 98.0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.networks:
        for sparsity in arguments.sparsity:
            model, inputs = network(name, sparsity / 100)
            for values, content in (("float32", encoded(model, (inputs(2),), {})), ("int8", int8_file(model, inputs(16)))):
                one, several = timed(content, inputs(1).numpy(), arguments.threads, arguments.rounds)
                middle = one[len(one) // 2] / several[len(several) // 2]
                numbers = [f"{one[0]:.3f}", f"{several[0]:.3f}", f"{one[0] / several[0]:.2f}", f"{middle:.2f}"]
                rows.append([name, f"{sparsity:g}", values, *numbers])
    header = ["network", "sparsity %", "values", "one thread, ms", f"{arguments.threads} threads, ms", "fastest calls", "medians"]
    print_table(Table("Threads at batch 1", header, rows, f"{swamp_runtime.instructions()}; ratios of one thread to {arguments.threads}"))


if __name__ == "__main__":
    main()
