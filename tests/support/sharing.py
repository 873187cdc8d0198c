"""The program of `test_data_parallel.py`. It becomes three ranks, which train jobs alone, by two and by three, and compare them."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import sys
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest
import torch
import torch._dynamo  # noqa: F401  DistributedDataParallel would import it in each rank
import torch.distributed as dist
from torch import nn

from swamp.core.job import Job, Optimizer
from swamp.core.noise import Noise
from swamp.core.rules import DST, SAM, RigL
from swamp.core.schedules import SWA
from swamp.core.state import State
from swamp.tasks.own.optimizer import OwnOptimizer
from swamp.tasks.task import Batch, EpochPlan, share_of
from swamp.training.data_parallel import SharingLearner
from swamp.training.numerics import applied, seed_model_draws
from swamp.training.train import Training
from tests.support.blobs import Blobs
from tests.support.jobs import CPU, make_job

TASK = Blobs(batch_size=8, num_examples=12)  # Half of the last batch is too small for three ranks.
JOBS: dict[str, Job] = {
    "plain": make_job(TASK),
    "swa": make_job(TASK, swa=SWA()),
    "accumulate": make_job(TASK, optimizer=Optimizer(accumulate=2)),
    "clipped adamw": make_job(TASK, optimizer=Optimizer(name="adamw", clip_norm=0.1, eps=1e-2)),
    "sam": make_job(TASK, rule=SAM(rho=0.1)),
    "rigl": make_job(TASK, rule=RigL(interval=3, fraction=0.3, until=0.75)),
    "dst": make_job(TASK, rule=DST(alpha=1e-3)),
}


class Double(Blobs):
    """Blobs in float64, in which shared trainings agree with single ones to nearly all digits."""

    def __init__(self) -> None:
        super().__init__(batch_size=8, num_examples=12)
        self.x = self.x.double()

    def model(self) -> nn.Module:
        return super().model().double()


class OwnBlobs(Blobs):
    """Blobs with an optimizer of their own."""

    own_optimizer = OwnOptimizer(lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True))


class TwiceBlobs(Blobs):
    """Blobs whose BatchNorm layer is called twice for each batch."""

    def model(self) -> nn.Module:
        model = super().model()
        model.last.register_forward_pre_hook(lambda layer, inputs: model.bn(3 * inputs[0] + 1))  # type: ignore[operator, union-attr]
        return model


class SkippingBlobs(Blobs):
    """Blobs with a BatchNorm layer that every other forward pass skips, as with stochastic depth."""

    def model(self) -> nn.Module:
        model, passes = super().model(), itertools.count()
        model.skipped = nn.BatchNorm1d(8)
        model.last.register_forward_pre_hook(lambda layer, inputs: model.skipped(inputs[0]) if next(passes) % 2 else None)  # type: ignore[operator, union-attr]
        return model


OWN = OwnBlobs(batch_size=8, num_examples=12)


class CutBlobs(Blobs):
    """Blobs whose plan makes only a rank's shares of batches, as that of decoded images does."""

    def cut(self, plan: EpochPlan, index: int, count: int) -> EpochPlan:
        order = plan.tables["order"]
        batches = [range(first, min(first + self.batch_size, len(order))) for first in range(0, len(order), self.batch_size)]
        return EpochPlan({f"{step}": order[torch.tensor(share_of(rows, index, count))] for step, rows in enumerate(batches)})

    def batch(self, plan: EpochPlan, step: int) -> Batch:
        if "order" in plan.tables:
            return super().batch(plan, step)
        rows = plan.tables[f"{step}"]
        return self.x[rows], self.y[rows]


@cache
def alone(name: str) -> tuple[State, list[float]]:
    """What one rank finds by itself, to which two and three are compared."""
    return trained(make_job(OWN), task=OWN) if name == "own optimizer" else trained(JOBS[name])


def trained(job: Job, group: dist.ProcessGroup | None = None, synced: bool = True, task: Blobs = TASK) -> tuple[State, list[float]]:
    with applied(job.numerics):
        learner = SharingLearner(task, job, CPU, group, synced) if group else None
        training = Training(task, job, task.init(Noise(0)), CPU, learner)
        while not training.done:
            training.run_epoch()
        return training.finish(), [record["loss"] for record in training.history]


def difference(one: tuple[State, list[float]], other: tuple[State, list[float]], buffers: bool = True) -> float:
    (a, a_losses), (b, b_losses) = one, other
    pairs = [(a.parameters[name], b.parameters[name]) for name in a.parameters]
    pairs += [(a.buffers[name].float(), b.buffers[name].float()) for name in a.buffers] if buffers else []
    return max(float((x - y).abs().max()) for x, y in [*pairs, (torch.tensor(a_losses), torch.tensor(b_losses))])


def main(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=3, timeout=timedelta(seconds=100))
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1, 2])]
    single = dist.new_group([0])
    found: dict[str, float] = {}
    for group, size in zip(groups, (2, 3), strict=True):
        if rank >= size:
            continue
        for name, job in JOBS.items():
            found[f"{name} by {size}"] = difference(alone(name), trained(job, group))
        found[f"own optimizer by {size}"] = difference(alone("own optimizer"), trained(make_job(OWN), group, task=OWN))
        cut = CutBlobs(batch_size=8, num_examples=12)
        found[f"cut by {size}"] = difference(alone("plain"), trained(make_job(TASK), group, task=cut))
    if rank < 2:
        local = trained(JOBS["accumulate"], groups[0], synced=False)
        found["local by 2"] = difference(alone("accumulate"), local)
        twice, job = TwiceBlobs(batch_size=8, num_examples=12), JOBS["accumulate"]
        found["local and called twice"] = difference(trained(job, task=twice), trained(job, groups[0], synced=False, task=twice))
        found["parts against the whole"] = difference(alone("plain"), local)
        dropping = Blobs(dropout=0.5, batch_size=8, num_examples=12)
        one, again = (trained(make_job(dropping), groups[0], task=dropping) for _ in range(2))
        found["dropout, again"] = difference(one, again)
        drawn = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
        learner = SharingLearner(TASK, make_job(TASK), CPU, groups[0], True)
        seed_model_draws(CPU, 5)
        learner._seed_draws_by_rank()
        dist.all_gather(drawn, torch.randint(2**60, (1,)), group=groups[0])
        seed_model_draws(CPU, 5)
        found["draws of the first share"] = float(drawn[0] - torch.randint(2**60, (1,)))
        found["draws of the second share"] = float(drawn[1] - drawn[0])
        found["float64"] = difference(trained(make_job(TASK), task=Double()), trained(make_job(TASK), groups[0], task=Double()))
    if not rank:
        skipping = SkippingBlobs(batch_size=8, num_examples=12)
        with pytest.raises(RuntimeError, match="called for some parts of a batch and not for others"):
            trained(JOBS["accumulate"], single, synced=False, task=skipping)
    # Two parts are too few for three ranks.
    found["local by 3"] = difference(alone("accumulate"), trained(JOBS["accumulate"], groups[1], synced=False))
    (Path(folder) / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    ranks = [multiprocessing.get_context("fork").Process(target=main, args=(rank, sys.argv[1])) for rank in range(3)]
    for process in ranks:
        process.start()  # Nothing was computed yet that a fork would break, and torch is imported once.
    for process in ranks:
        process.join()
    sys.exit(any(process.exitcode for process in ranks))
