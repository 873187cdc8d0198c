"""Time one run on every engine that trains particles in parallel, as ratios, and check whether the results have the same bytes.

    python benchmarks/scaling.py [--engines "sequential,distributed 4,distributed 2×2"] [--rounds 3] [--settings --cycle.epochs 20]

The clock runs from the end of the ticket, which is a single training, to the last row; starting processes is not counted. Rounds are
interleaved, and the fastest counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

BASE = ["--methods.swamp.particles=4", "--pruning.cycles=2", "--ticket.epochs=2", "--cycle.epochs=10", "--plain"]


def command(name: str, directory: Path, settings: list[str]) -> list[str]:
    """Return the command of an engine; `distributed 2×2` means two groups of two ranks."""
    engine, _, shape = name.partition(" ")
    line = ["-m", "swamp", "run", "digits", f"--out={directory}", f"--engine={engine}", *BASE, *settings]
    if engine == "distributed":
        particles, _, data = shape.partition("×")
        ranks = int(particles) * int(data or 1)
        line = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={ranks}",
            *line,
            f"--engines.distributed.data={data or 1}",
        ]
    return [sys.executable, *line]


def clock(directory: Path) -> float:
    """Return the seconds from the end of the ticket to the last row."""
    records = [json.loads(line) for line in (directory / "timing.jsonl").read_text().splitlines()]
    ticket = next(record["at"] for record in records if record["what"] == "ticket")
    return float(records[-1]["at"] - ticket)


def announced(directory: Path) -> int:
    """Return the bytes that a cycle's jobs take when they are sent to a rank."""
    records = [json.loads(line) for line in (directory / "timing.jsonl").read_text().splitlines()]
    return max((record["bytes"] for record in records if record["what"] == "jobs announced"), default=0)


def difference(one: Path, other: Path) -> str:
    """Say whether all results are equal, or how far the dense averages are apart relative to their norm."""
    objects = [{path.name: path.read_bytes() for path in (directory / "objects").iterdir()} for directory in (one, other)]
    if objects[0] == objects[1] and (one / "results.json").read_bytes() == (other / "results.json").read_bytes():
        return "equal bytes"
    first, second = (load_file(directory / "cycle-00/average.safetensors") for directory in (one, other))
    weights = [name for name in first if first[name].is_floating_point() and "running" not in name]
    a, b = (torch.cat([found[name].flatten() for name in weights]) for found in (first, second))
    return f"dense average within {float((a - b).norm() / a.norm()):.1e} of its norm"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="sequential,processes,distributed 1,distributed 2,distributed 4,distributed 2×2,ray")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settings", nargs=argparse.REMAINDER, default=[])
    arguments = parser.parse_args()
    names = arguments.engines.split(",")
    times: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            for name in names:
                directory = Path(folder) / f"{name}-{number}".replace(" ", "-")
                subprocess.run(command(name, directory, arguments.settings), check=True, capture_output=True)
                times[name].append(clock(directory))
        reference = Path(folder) / f"{names[0]}-0".replace(" ", "-")
        print(f"| engine | s | / {names[0]} | against {names[0]} | bytes announced a cycle |\n|---|---|---|---|---|")
        for name in names:
            directory = Path(folder) / f"{name}-0".replace(" ", "-")
            fastest = min(times[name])
            same = difference(reference, directory)
            print(f"| {name} | {fastest:.1f} | {fastest / min(times[names[0]]):.2f} | {same} | {announced(directory) or '–'} |")


if __name__ == "__main__":
    main()
