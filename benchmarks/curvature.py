"""Print the trace of one network's Hessian on several kinds of examples, to find out which kind a published number is of.

    python benchmarks/curvature.py DIR --cycle 2 [--of training,augmented,batch,test] [--examples 400] [--probes 6] [--device cpu]

training   training examples, not augmented; BatchNorm in evaluation mode
augmented  training examples with augmentation
batch      training examples, not augmented; BatchNorm with the statistics of each batch
test       test examples

docs/reproduction/landscape.md compares its results with the paper's numbers (one thread, float32).
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch

from swamp.analyses.study import Study
from swamp.landscape import Hessian, probe_traces
from swamp.landscape.point import subset
from swamp.results.stored_run import read_run
from swamp.tasks.task import Batch


def augmented(study: Study, count: int) -> list[Batch]:
    """Return examples as a training sees them in its first epoch."""
    task = study.task
    plan = task.plan(study.setup.noise.fold("augmented"), 0, study.device)
    batches, left = [], count
    for step in range(task.steps_per_epoch):
        batch = task.batch(plan, step)
        batches.append(tuple(part[:left] for part in batch))
        left -= len(batches[-1][0])
        if not left:
            break
    return batches


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--cycle", type=int, required=True)
    parser.add_argument("--of", default="training,augmented,batch,test")
    parser.add_argument("--examples", type=int, default=400)
    parser.add_argument("--probes", type=int, default=6, help="at least two")
    parser.add_argument("--device", default=None)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    study = Study(read_run(given.directory), [given.cycle], {"examples": given.examples}, given.device)
    (row,) = study.rows
    mask = study.analysis_store.load_mask(row.mask)
    assert mask is not None
    kinds = {
        "training": lambda: subset(study.setup),
        "augmented": lambda: augmented(study, given.examples),
        "batch": lambda: subset(study.setup),
        "test": lambda: subset(study.setup, "test"),
    }
    print(f"trace of the Hessian of {given.directory}, cycle {given.cycle}, up to {given.examples} examples, {given.probes} probes")
    for name in given.of.split(","):
        hessian = Hessian(study.task, study.state(row.solution), mask, kinds[name](), study.device, study.config.numerics)
        hessian.model.train(name == "batch")
        values = probe_traces(hessian, hessian.size, study.setup.noise, 0, given.probes)
        error = statistics.stdev(values) / len(values) ** 0.5
        print(f"{name:10} {statistics.fmean(values):10.1f} ± {error:.1f}", flush=True)


if __name__ == "__main__":
    main()
