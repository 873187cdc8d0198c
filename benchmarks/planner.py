"""Compare what `swamp plan` predicts with real launches of 1, 2 and 4 ranks on this machine's CPU.

    python benchmarks/planner.py [--recipe digits] [--layouts 1x1,2x1,1x2,4x1,2x2,1x4] [--settings --tasks.image.batch_size 256]

A layout is groups × ranks of a group. Steps are timed in one process, and sums in two; everything else is computed. Ranks that share a core
are slower by their number on it, which is the one thing added here, since GPUs are not shared. The clock of a launch runs from its first
epoch's training to its last row.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

from swamp.commands.arguments import split_arguments
from swamp.commands.plan import plan as plan_command
from swamp.core.machine import num_cores
from swamp.runs.config import build_config, resolve
from swamp.runs.layouts import Cluster, Pace, Paces, predict
from swamp.runs.planning import measured_paces, plan_of, planned_task, work_of

BASE = ["--methods.swamp.particles=4", "--pruning.cycles=1", "--ticket.epochs=2", "--cycle.epochs=6"]
LARGE = 2**22  # numbers in a sum that is limited by bandwidth
NUM_SUMS = 20


def time_sums() -> None:
    """Print the seconds of a small and of a large sum over two ranks; both are started by torchrun."""
    dist.init_process_group("gloo")

    def seconds(size: int) -> float:
        tensor = torch.ones(size)
        dist.all_reduce(tensor)
        begin = time.perf_counter()
        for _ in range(NUM_SUMS):
            dist.all_reduce(tensor)
        return (time.perf_counter() - begin) / NUM_SUMS

    small, large = seconds(64), seconds(LARGE)
    if dist.get_rank() == 0:
        print(json.dumps({"small": small, "large": large}))
    dist.destroy_process_group()


def torchrun(num_ranks: int, *line: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}", *line]


def clock(directory: Path) -> float:
    """Return the seconds from the beginning of the ticket to the last row."""
    records = [json.loads(line) for line in (directory / "timing.jsonl").read_text().splitlines()]
    ticket = next(record for record in records if record["what"] == "ticket")
    return float(records[-1]["at"] - ticket["at"] + ticket["seconds"])


def slower(pace: Pace, factor: float) -> Pace:
    return Pace(pace.fixed * factor, pace.each * factor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="digits")
    parser.add_argument("--layouts", default="1x1,2x1,1x2,4x1,2x2,1x4")
    parser.add_argument("--settings", nargs=argparse.REMAINDER, default=[])
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        time_sums()
        return
    shapes = [tuple(map(int, shape.split("x"))) for shape in arguments.layouts.split(",")]
    _, settings = split_arguments([*BASE, *arguments.settings], plan_command)
    config = resolve(build_config(arguments.recipe, {**settings, "engine": "sequential", "device": "cpu"}))
    task, _ = planned_task(config, print)
    work = work_of(task, plan_of(config, task), 0)
    paces = measured_paces(config, task, [2, 4], lambda text: None)
    sums = json.loads(subprocess.run(torchrun(2, __file__), check=True, capture_output=True, text=True).stdout)
    latency, bandwidth = sums["small"] / 2, 4 * LARGE / sums["large"]
    print(f"a step: {paces}; a sum: {1e6 * latency:.0f} µs and {bandwidth / 1e9:.2f} GB/s; {num_cores()} cores")
    print("| groups × ranks | predicted s | measured s | predicted / measured |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for groups, data in shapes:
            ranks = groups * data
            factor = max(1.0, ranks / num_cores())
            cluster = Cluster(ranks, ranks, bandwidth / factor, bandwidth, latency * factor)
            predicted = predict(cluster, work, Paces(slower(paces.alone, factor), slower(paces.shared, factor)), data).seconds
            directory = Path(folder) / f"{groups}-{data}"
            engine = [f"--out={directory}", "--engine=distributed", f"--engines.distributed.data={data}", "--device=cpu", "--plain"]
            line = ["-m", "swamp", "run", arguments.recipe, *engine, *BASE, *arguments.settings]
            subprocess.run(torchrun(ranks, *line), check=True, capture_output=True)
            measured = clock(directory)
            print(f"| {groups} × {data} | {predicted:.1f} | {measured:.1f} | {predicted / measured:.2f} |", flush=True)


if __name__ == "__main__":
    main()
