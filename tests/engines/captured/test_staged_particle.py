"""The graphed engine on streamed data: steps are captured and read batches from fixed tensors, in every size of a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from swamp.core.job import Numerics, Optimizer
from swamp.core.noise import Noise
from swamp.core.rules import SAM, RigL
from swamp.core.schedules import SWA, Schedule
from swamp.engines import graphed
from swamp.engines.captured import refresh
from swamp.engines.captured.staged_particle import StagedBatch, StagedParticle, shapes_of
from swamp.tasks import streaming
from swamp.tasks.image import ImageTask
from swamp.tasks.streaming import StreamedSource
from swamp.training.averaging import averaged_state
from swamp.training.numerics import applied
from tests.support.made_up_datasets import gradient_jpeg, write
from tests.support.prepared import CLASSES, prepared_task, write_prepared
from tests.support.trainings import (
    NUM_PARTICLES,
    check_same_trainings,
    count_captures,
    distance,
    make_engine_context,
    make_jobs,
    messages,
    on_cuda,
    start_of,
    stop_in_the_middle,
    train_by_both,
    trained,
    uncompiled_engine,
)

SHORT = Schedule(epochs=2, learning_rate=0.01)
SIZES = {"0": 8, "1": 12, "2": 16}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prepared(tmp_path_factory.mktemp("prepared"))


@pytest.mark.parametrize(("device", "compiled"), [("cpu", False), on_cuda(False), on_cuda(True)], indirect=["device"])
@pytest.mark.parametrize("swa", [None, SWA(start=0.4, learning_rate=0.01)])
@pytest.mark.parametrize("sizes", [{}, SIZES])
def test_weights_are_those_of_sequential(
    folder: Path, device: torch.device, compiled: bool, swa: SWA | None, sizes: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Two epochs of five steps, of which the last has a smaller batch; in the second epoch, images may be larger. Each particle has its own
    order and crops."""
    task = prepared_task(folder, sizes=sizes)
    jobs = make_jobs(task, swa=swa, schedule=SHORT)
    expected, found = train_by_both(task, jobs, device, compile=compiled)
    start = start_of(task, jobs)
    check_same_trainings(expected, found, start)
    assert distance(expected[0], expected[1], start) > 0.5
    assert not messages(caplog)


def test_images_decoded_from_files_are_captured_too(
    device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(streaming, "num_usable", lambda *_: 0)  # so that no processes are started
    for split, count in (("train", 4), ("val", 1)):
        for label, synset in enumerate(CLASSES):
            for index in range(count):
                write(
                    tmp_path / "imagenet" / split / synset / f"{index}.JPEG", gradient_jpeg(40 + index, 50 - label, seed=10 * label + index)
                )
    task = prepared_task(tmp_path, sizes=SIZES)
    assert isinstance(task.source, StreamedSource)
    jobs = make_jobs(task, schedule=SHORT)
    expected, found = train_by_both(task, jobs, device, compile=False)
    check_same_trainings(expected, found, start_of(task, jobs))
    assert not messages(caplog)


@pytest.mark.parametrize("rule", [SAM(rho=0.05), RigL(interval=2, fraction=0.3, until=0.75)])
def test_rules_see_the_batch_of_the_step(folder: Path, device: torch.device, rule: Any) -> None:
    """In batches of 16 and at this rate, a start changed in its last bits moves SAM by up to 0.006; in batches of 5, one moved by 0.19."""
    task = prepared_task(folder, sizes={"0": 8, "1": 12}, batch_size=16)
    jobs = make_jobs(task, rule=rule, schedule=Schedule(epochs=2, learning_rate=0.003))
    expected, found = train_by_both(task, jobs, device, compile=False)
    check_same_trainings(expected, found, start_of(task, jobs))


def test_parts_of_a_batch_are_captured_too(folder: Path, device: torch.device) -> None:
    task = prepared_task(folder)
    jobs = make_jobs(task, optimizer=Optimizer(accumulate=2), schedule=SHORT)
    expected, found = train_by_both(task, jobs, device, compile=False)
    check_same_trainings(expected, found, start_of(task, jobs))


def test_there_is_one_captured_step_for_each_size_and_number_of_examples(
    folder: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = count_captures(device, monkeypatch)
    task = prepared_task(folder, sizes=SIZES)
    engine = uncompiled_engine(task, device)
    trained(engine, make_jobs(task, schedule=SHORT))
    assert count[0] == 6 * NUM_PARTICLES
    trained(engine, make_jobs(task, schedule=Schedule(epochs=3, learning_rate=0.02)))
    assert count[0] == 6 * NUM_PARTICLES  # The particles were taken over.
    (variant,) = engine.pool.variants.values()
    assert all(isinstance(particle, StagedParticle) for particle in variant.particles)
    shapes = [tuple(staged.batch[0].shape) for staged in variant.particles[0].inputs.values()]  # type: ignore[attr-defined]
    # The largest come first: graphs share their memory, and what is captured later finds room in it only if it is smaller.
    assert shapes == [(rows, 3, side, side) for side in (16, 12, 8) for rows in (5, 2)]


def test_a_stopped_training_resumes_bit_for_bit(folder: Path, device: torch.device) -> None:
    task = prepared_task(folder, sizes={"0": 8, "1": 12})
    jobs = make_jobs(task, numerics=Numerics(deterministic=True), swa=SWA(start=0.4, learning_rate=0.01))
    whole = trained(graphed.build(make_engine_context(task, device), graphed.Config()), jobs)
    context = make_engine_context(task, device, checkpoint_seconds=0.0)

    with pytest.raises(KeyboardInterrupt):
        list(graphed.build(context, graphed.Config()).train(jobs, stop_in_the_middle))
    again = trained(graphed.build(context, graphed.Config()), jobs)
    assert [state.digest() for state in again] == [state.digest() for state in whole]


def test_averages_are_made_by_a_captured_pass_at_the_size_of_tests(
    folder: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[refresh.CapturedRefresh] = []
    kind = refresh.CapturedRefresh
    monkeypatch.setattr(refresh, "CapturedRefresh", lambda *arguments: [made.append(kind(*arguments)), made[-1]][1])
    task = prepared_task(folder, sizes=SIZES)
    engine = uncompiled_engine(task, device)
    state = task.init(Noise(1))
    for noise in (Noise(7), Noise(8)):
        found = engine.averaged(task, state.parameters, state.buffers, noise)
        with applied(Numerics()):
            expected = averaged_state(task, state.parameters, state.buffers, noise, Numerics(), device)
        for name, tensor in expected.buffers.items():
            assert (found.buffers[name] - tensor).double().norm() <= 1e-4 * tensor.double().norm()
    assert len(made) == 1
    assert {tuple(staged.batch[0].shape) for staged in made[0].staged.values()} == {(5, 3, 16, 16), (2, 3, 16, 16)}


def test_steps_are_timed_in_the_size_of_an_epoch(folder: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    task = prepared_task(folder, sizes=SIZES)
    seen: list[int] = []
    batch = ImageTask.batch

    def watched(self: Any, plan: Any, step: int) -> Any:
        seen.append(plan.showing.size)
        return batch(self, plan, step)

    engine = uncompiled_engine(task, device)
    jobs = make_jobs(task)
    assert engine.step_seconds(jobs, 0) > 0
    monkeypatch.setattr(ImageTask, "batch", watched)
    assert engine.step_seconds(jobs, 1) > 0
    assert set(seen) == {12}


def test_fixed_tensors_are_copies_and_are_filled_in_place() -> None:
    first = torch.arange(24.0).view(2, 3, 2, 2), torch.tensor([1, 2])
    staged = StagedBatch(first)
    addresses = [leaf.data_ptr() for leaf in staged.batch]
    assert staged.batch[0].is_contiguous(memory_format=torch.channels_last)
    staged.fill((first[0] + 1, first[1] + 1))
    assert torch.equal(staged.batch[0], first[0] + 1)
    assert staged.batch[1].tolist() == [2, 3]
    assert [leaf.data_ptr() for leaf in staged.batch] == addresses
    assert first[1].tolist() == [1, 2]


def test_shapes_tell_batches_apart() -> None:
    one = {"x": torch.zeros(2, 3), "name": "a"}
    others = [{"x": torch.zeros(2, 4), "name": "a"}, {"x": torch.zeros(2, 3).long(), "name": "a"}, {"x": torch.zeros(2, 3), "name": "b"}]
    assert shapes_of(one) == shapes_of({"x": torch.ones(2, 3), "name": "a"})
    assert len({shapes_of(one), *map(shapes_of, others), shapes_of([torch.zeros(2, 3), "a"])}) == 5
