"""What tests of engines share: tasks, jobs, engine contexts, and comparisons of trained networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from swamp.core.job import Job, Numerics, Optimizer
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.rules import SAM
from swamp.core.schedules import Schedule
from swamp.core.state import State
from swamp.engines import engine_modules, graphed, sequential
from swamp.engines.captured import particle, refresh
from swamp.engines.captured.graph_stream import GraphStream
from swamp.engines.engine import EngineContext, Progress
from swamp.tasks.image import Config, ImageTask
from swamp.tasks.task import EpochPlan
from swamp.training.numerics import seed_model_draws
from tests.support.blobs import Blobs
from tests.support.memory_store import MemoryStore

NUM_PARTICLES = 3
TWO_STEPS = 256  # the batch size with which an epoch of the digits has two steps, of which the second has a smaller batch


class EagerGraphStream:
    """A stand-in for GraphStream without CUDA. A replay calls the step itself."""

    is_idle: Any = True

    def __init__(self, device: torch.device) -> None:
        self.device, self.draws = device, True

    def capture(self, step: Callable[[], None], before: Callable[[], object]) -> Callable[[], None]:
        before()
        step()
        return step

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    def seed(self, integer: int) -> None:
        seed_model_draws(self.device, integer)

    def follow_current_stream(self) -> None: ...

    def wait(self) -> None: ...


def count_captures(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list whose single number counts captured steps from now on; on a CPU, those that EagerGraphStream is given."""
    kind: Any = EagerGraphStream if device.type == "cpu" else GraphStream
    count, capture = [0], kind.capture

    def counted(self: Any, step: Callable[[], None], before: Callable[[], object]) -> Callable[[], None]:
        count[0] += 1
        return capture(self, step, before)  # type: ignore[no-any-return]

    monkeypatch.setattr(kind, "capture", counted)
    return count


def note_busy_particles(monkeypatch: pytest.MonkeyPatch) -> list[list[particle.Particle]]:
    """Return a list that is given the particles in training whenever the graphed engine ends an epoch from now on."""
    noted, end_epoch = [], graphed.Graphed._end_epoch
    monkeypatch.setattr(graphed.Graphed, "_end_epoch", lambda self, *given: [noted.append([*self.busy]), end_epoch(self, *given)][1])
    return noted


def graphed_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the graphed engine train on the CPU, with steps that are called instead of captured."""
    monkeypatch.setattr(particle, "GraphStream", EagerGraphStream)
    monkeypatch.setattr(refresh, "GraphStream", EagerGraphStream)
    monkeypatch.setitem(engine_modules(), "graphed", replace(engine_modules()["graphed"], devices=("cpu",)))


class BlobsOnDevice(Blobs):
    """Blobs whose data lie on the training device."""

    def plan(self, noise: Noise, epoch: int, device: torch.device) -> EpochPlan:
        self.x, self.y = self.x.to(device), self.y.to(device)
        return EpochPlan({name: table.to(device) for name, table in super().plan(noise, epoch, device).tables.items()})


class UncapturableBlobs(BlobsOnDevice):
    """Blobs whose loss reads its own value on the host, which no graph can do."""

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = F.cross_entropy(model(batch[0]), batch[1])
        return loss * 2 if loss.item() > 1e6 else loss


def digits(batch_size: int = 64) -> ImageTask:
    return ImageTask(Config(flip=True, batch_size=batch_size))


def make_jobs(task: Any, **changes: Any) -> list[Job]:
    generator = torch.Generator().manual_seed(1)
    mask = Mask({name: torch.rand(shape, generator=generator) < 0.5 for name, shape in task.prunable.items()})
    job = Job(task.fingerprint, "start", mask, Noise(0), Schedule(epochs=3, learning_rate=0.02), None, Optimizer(), Numerics())
    job = replace(job, **changes)
    return [replace(job, noise=noise) for noise in Noise(0).fold("cycle", 1).split("particle", NUM_PARTICLES)]


def make_engine_context(
    task: Any, device: torch.device, numerics: Numerics | None = None, checkpoint_seconds: float = 1e9
) -> EngineContext:
    store = MemoryStore()
    store.states["start"] = task.init(Noise(0).fold("init"))
    return EngineContext({task.fingerprint: task}, store, numerics or Numerics(), device, checkpoint_seconds)


def uncompiled_engine(task: Any, device: torch.device, **settings: Any) -> graphed.Graphed:
    """Return a graphed engine that does not compile, which would take longer than these trainings."""
    return graphed.build(make_engine_context(task, device), graphed.Config(compile=False, **settings))


def jobs_with_two_rules(task: Any) -> list[Job]:
    """Return jobs that need two captured steps, because they differ in their rule."""
    return [*make_jobs(task), *make_jobs(task, rule=SAM(rho=0.05))]


def silent(_: Progress) -> None: ...


def stop_in_the_middle(progress: Progress) -> None:
    """Stop an engine when the second particle has trained two epochs."""
    if progress.epoch == 2 and progress.label.endswith("1"):
        raise KeyboardInterrupt


def trained(engine: Any, jobs: list[Job]) -> list[State]:
    return [solution.load() for solution in engine.train(jobs, silent)]


def train_by_both(task: Any, jobs: list[Job], device: torch.device, **settings: Any) -> tuple[list[State], list[State]]:
    """Train the jobs by `sequential` and by `graphed`."""
    context = make_engine_context(task, device)
    expected = trained(sequential.build(context, sequential.Config()), jobs)
    engine = graphed.build(make_engine_context(task, device), graphed.Config(**settings))
    found = trained(engine, jobs)
    assert all(variant.particles for variant in engine.pool.variants.values())
    engine.close()
    return expected, found


def start_of(task: Any, jobs: list[Job]) -> State:
    """Return the masked state from which these jobs start."""
    return jobs[0].mask.apply(task.init(Noise(0).fold("init")))


def distance(expected: State, found: State, start: State, but: str = "") -> float:
    """Return how far apart two trained networks are, relative to how far training moved. The parameter `but` is left out."""
    names = [name for name in expected.parameters if name != but]
    pairs = [(expected.parameters[name], found.parameters[name], start.parameters[name]) for name in names]
    apart = sum(float((a - b).double().square().sum()) for a, b, _ in pairs)
    moved = sum(float((a - c).double().square().sum()) for a, _, c in pairs)
    return (apart / moved) ** 0.5


def check_same_trainings(expected: list[State], found: list[State], start: State, most: float = 0.1) -> None:
    """Check that trainings of two float32 steps are the same but for rounding.

    Rounding alone turns a ReLU on or off now and then, which moves the result. When the start of `sequential` was changed in its last bit
    200 times on a CPU, 221 of 600 trainings moved by more than 0.001, 9 by more than 0.01, and the farthest by 0.020. With SAM, which
    divides by the norm of the gradient, these were 277, 139 and 0.031. On an H200 the farthest of 12 moved by 0.06. So `most` is 0.1.
    It is below what a mistake does: another particle is 0.9 away, SAM without its second gradient 0.4 to 1.6, SGD without momentum 0.26
    to 0.30. Smaller mistakes show in networks so small that rounding turns no ReLU; tests of those give a smaller `most`.
    """
    distances = [distance(a, b, start) for a, b in zip(expected, found, strict=True)]
    assert max(distances) < most, distances


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what swamp logged. A compiler logs, too."""
    return [record.message for record in caplog.records if record.name == "swamp"]


def on_cuda(*values: Any) -> Any:
    return pytest.param("cuda", *values, marks=pytest.mark.gpu)


def check_like_sequential(task: Any, jobs: list[Job], found: list[State], device: torch.device) -> None:
    """Check that results are those of `sequential`, for networks so small that rounding hardly matters."""
    expected = trained(sequential.build(make_engine_context(task, device), sequential.Config()), jobs)
    for a, b in zip(expected, found, strict=True):
        assert distance(a, b, start_of(task, jobs)) < 1e-3
