"""Compare what `swamp plan` predicts with real launches of 1, 2 and 4 ranks on this machine's CPU.

    python benchmarks/planner.py [--recipe digits] [--layouts 1x1,2x1,1x2,4x1,2x2,1x4] [--settings --tasks.image.batch_size 256]

A layout is groups × ranks of a group. Steps are timed in one process, and sums in two; everything else is computed. Ranks that share a CPU
slow each other down, which GPUs do not: a convolution is timed in 1, 2 and 4 processes at once, and the ratio is a factor of the times
above. The clock of a launch runs from the beginning of its ticket to its last row.
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
from swamp.runs.plan import make_plan
from swamp.runs.workload import measured_paces, planned_task, work_of

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


def slowdown(num_ranks: int) -> float:
    """Return how many times longer a convolution takes in so many processes at once than in one."""

    def seconds(count: int) -> float:
        code = (
            "import time, torch; torch.set_num_threads(1); x = torch.randn(64, 16, 8, 8); c = torch.nn.Conv2d(16, 32, 3, padding=1)\n"
            "times = []\nend = time.time() + 4\n"
            "while time.time() < end:\n"
            "    begin = time.perf_counter()\n    for _ in range(20): c(x).sum().backward()\n"
            "    times.append(time.perf_counter() - begin)\n"
            "print(sum(times[len(times) // 4:]) / len(times[len(times) // 4:]))"
        )
        workers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(count)]
        return sum(float(worker.communicate()[0]) for worker in workers) / count

    return max(seconds(num_ranks) / seconds(1), 1.0) if num_ranks > 1 else 1.0


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
    parser.add_argument("--rounds", type=int, default=1, help="launches of each layout, of which the fastest counts")
    parser.add_argument("--settings", nargs=argparse.REMAINDER, default=[])
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        time_sums()
        return
    shapes = [tuple(map(int, shape.split("x"))) for shape in arguments.layouts.split(",")]
    _, settings = split_arguments([*BASE, *arguments.settings], plan_command)
    config = resolve(build_config(arguments.recipe, {**settings, "engine": "sequential", "device": "cpu"}))
    task, _ = planned_task(config, print)
    work = work_of(task, make_plan(config, task), 0)
    paces = measured_paces(config, task, [2, 4], lambda text: None)
    sums = json.loads(subprocess.run(torchrun(2, __file__), check=True, capture_output=True, text=True).stdout)
    latency, bandwidth = sums["small"] / 2, 4 * LARGE / sums["large"]
    print(f"a step: {paces}; a sum: {1e6 * latency:.0f} µs and {bandwidth / 1e9:.2f} GB/s; {num_cores()} cores")
    factors = {ranks: slowdown(ranks) for ranks in sorted({groups * data for groups, data in shapes})}
    print("slower by sharing the CPU: " + ", ".join(f"{ranks} processes {factor:.2f}" for ranks, factor in factors.items()))
    print("| groups × ranks | predicted s | measured s | predicted / measured |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for groups, data in shapes:
            ranks = groups * data
            factor = factors[ranks]
            cluster = Cluster(ranks, ranks, bandwidth / factor, bandwidth, latency * factor)
            predicted = predict(cluster, work, Paces(slower(paces.alone, factor), slower(paces.shared, factor)), data).seconds
            times = []
            for number in range(arguments.rounds):
                directory = Path(folder) / f"{groups}-{data}-{number}"
                engine = [f"--out={directory}", "--engine=distributed", f"--engines.distributed.data={data}", "--device=cpu", "--plain"]
                line = ["-m", "swamp", "run", arguments.recipe, *engine, *BASE, *arguments.settings]
                subprocess.run(torchrun(ranks, *line), check=True, capture_output=True)
                times.append(clock(directory))
            measured = min(times)
            print(f"| {groups} × {data} | {predicted:.1f} | {measured:.1f} | {predicted / measured:.2f} |", flush=True)


if __name__ == "__main__":
    main()
