"""Measure the runner's overhead: the time for everything but training and testing (store, checkpoints, metrics, pruning), as a share.

    python benchmarks/overhead.py [--epochs 60] [--checkpoint-seconds 15]

Runs IMP on the digits recipe in this process and compares the time inside training epochs and evaluations with the time outside them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import swamp
from swamp.runs.opening import open_task
from swamp.tasks.image import ImageTask
from swamp.training.train import Training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checkpoint-seconds", type=float, default=15.0)
    given = parser.parse_args()
    settings = {
        "method": "imp",
        "engine": "sequential",
        "pruning.cycles": 2,
        "cycle.epochs": given.epochs,
        "checkpoint_seconds": given.checkpoint_seconds,
    }
    open_task(swamp.build_config("digits", settings))  # imports scikit-learn
    inside = 0.0

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any) -> Any:
            nonlocal inside
            begin = time.perf_counter()
            result = function(*arguments)
            inside += time.perf_counter() - begin
            return result

        return wrapper

    Training.run_epoch = timed(Training.run_epoch)  # type: ignore[method-assign]
    ImageTask.evaluate = timed(ImageTask.evaluate)  # type: ignore[method-assign]
    shares = []
    for round_number in range(given.rounds):
        inside = 0.0
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            swamp.run("digits", out=Path(folder) / "run", **settings)
            whole = time.perf_counter() - begin
        shares.append((whole - inside) / inside)
        print(f"round {round_number}: {whole:.2f} s, of which networks {inside:.2f} s; the rest is {100 * shares[-1]:.2f} % of it")
    median = 100 * statistics.median(shares)
    print(f"median {median:.2f} % (3 × {given.epochs} epochs, a checkpoint at most every {given.checkpoint_seconds} s)")


if __name__ == "__main__":
    main()
