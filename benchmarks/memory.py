"""Measure the peak memory of a SWAMP run for several numbers of particles.

    python benchmarks/memory.py

Each N runs in a fresh process with the sequential engine, on a network whose weights take most of the memory, so that holding all
particles at once would show. Prints the peak resident memory of each.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WIDTHS = (64, 256, 1024)  # 22 million weights: 88 MB a particle


def measure(particles: int) -> None:
    import swamp
    from swamp.tasks.models import MODELS
    from swamp.tasks.models.residual import ResidualNet

    MODELS["large"] = lambda channels, classes: ResidualNet(channels, classes, stem=16, widths=WIDTHS, blocks=1)
    settings: dict[str, Any] = {
        "tasks.image.model": "large",
        "tasks.image.batch_size": 497,
        "methods.swamp.particles": particles,
        "engine": "sequential",
        "pruning.cycles": 1,
        "ticket.epochs": 0,
        "cycle.epochs": 1,
        "keep": "last",
    }
    with tempfile.TemporaryDirectory() as folder:
        swamp.run("digits", out=Path(folder) / "run", **settings)
    print(f"N = {particles}: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(int(sys.argv[1]))
    else:
        for count in (1, 2, 8):
            subprocess.run([sys.executable, __file__, str(count)], check=True)
