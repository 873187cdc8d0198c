from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch

from swamp.core.job import Numerics
from swamp.core.noise import Noise
from swamp.core.pruning import keep_highest, magnitude, rounded_share
from swamp.core.state import State
from swamp.runs.config import Config
from swamp.runs.job_maker import JobMaker
from swamp.runs.opening import open_task
from swamp.runs.stored import read_config
from swamp.store.directory import Store
from swamp.training.averaging import averaged_state
from tests.support.runs import contents, iterate

Make = Callable[..., Config]


def test_swamp_with_one_particle_and_no_swa_is_imp(quick: Make, tmp_path: Path) -> None:
    for rewind in ("weights", "init", "lr"):
        imp = list(iterate(quick(method="imp", pruning__rewind=rewind), tmp_path / rewind / "imp"))
        swamp = list(
            iterate(quick(methods__swamp__particles=1, methods__swamp__swa=False, pruning__rewind=rewind), tmp_path / rewind / "swamp")
        )
        objects = [
            {name: data for name, data in contents(tmp_path / rewind / method).items() if name.startswith("objects")}
            for method in ("imp", "swamp")
        ]
        assert objects[0] == objects[1]
        assert [row.metrics for row in imp] == [row.metrics for row in swamp]
        assert [row.cost for row in imp] == [row.cost for row in swamp]


def test_the_average_is_the_particles_mean_and_the_mask_is_pruned_from_it(quick: Make, tmp_path: Path) -> None:
    rows = list(iterate(quick(methods__swamp__particles=3), tmp_path / "run"))
    store = Store(tmp_path / "run")
    for row, progress in pairwise(rows):
        average = store.load_state(row.solution)
        particles = [store.load_state(key) for key in row.particles]
        assert len({particle.digest() for particle in particles}) == 3
        for name, tensor in average.parameters.items():
            assert torch.equal(tensor, (particles[0].parameters[name] + particles[1].parameters[name] + particles[2].parameters[name]) / 3)
        mask, pruned = store.load_mask(row.mask), store.load_mask(progress.mask)
        assert mask is not None
        assert pruned is not None
        density = quick().pruning.density(progress.cycle)
        assert keep_highest(magnitude(average, mask), mask, rounded_share(mask.num_weights, density)).digest == pruned.digest


def test_a_mask_can_be_pruned_from_the_particle_with_the_lowest_training_loss(quick: Make, tmp_path: Path) -> None:
    best_first = {"0": "best-particle", "1": "average"}
    rows = list(iterate(quick(methods__swamp__particles=3, methods__swamp__pruned=best_first, seed=2), tmp_path / "run"))
    store, task = Store(tmp_path / "run"), open_task(read_config(tmp_path / "run"))

    def loss(key: str) -> float:
        model = task.model()
        store.load_state(key).into(model)
        return task.evaluate(model, "train")["nll"]

    best = min(rows[0].particles, key=loss)
    assert best != rows[0].particles[0]
    for (row, progress), key in zip(pairwise(rows), [best, rows[1].solution], strict=True):
        mask, pruned = store.load_mask(row.mask), store.load_mask(progress.mask)
        assert mask is not None
        assert pruned is not None
        density = quick().pruning.density(progress.cycle)
        assert keep_highest(magnitude(store.load_state(key), mask), mask, rounded_share(mask.num_weights, density)).digest == pruned.digest


def test_statistics_are_those_of_the_average_itself(quick: Make, tmp_path: Path) -> None:
    """Not a particle's and not their mean; and the count of batches is the ticket's."""
    config = quick(pruning__cycles=0, methods__swamp__swa=False)
    (row,) = iterate(config, tmp_path / "run")
    store = Store(tmp_path / "run")
    average, particles = store.load_state(row.solution), [store.load_state(key) for key in row.particles]
    task = open_task(read_config(tmp_path / "run"))
    expected = averaged_state(task, average.parameters, average.buffers, Noise(0).fold("mean"), Numerics(), torch.device("cpu"))
    assert expected.digest() == average.digest()
    mean = sum(particle.buffers["bn.running_var"] for particle in particles) / len(particles)
    assert not torch.allclose(average.buffers["bn.running_var"], mean, rtol=1e-3)  # type: ignore[arg-type]
    steps = task.steps_per_epoch
    assert average.buffers["bn.num_batches_tracked"].item() == steps  # one epoch of ticket
    assert particles[0].buffers["bn.num_batches_tracked"].item() == 3 * steps  # and two of the cycle


def test_every_cycle_rewinds_to_the_ticket_and_the_ticket_never_changes(quick: Make, tmp_path: Path) -> None:
    """With no learning at all, what a cycle ends with is what it started from."""
    config = quick(method="imp", cycle__learning_rate=1e-30, cycle__epochs=1)
    rows = list(iterate(config, tmp_path / "run"))
    store = Store(tmp_path / "run")
    ticket = store.load_state(rows[0].solution)
    for row in rows[1:]:
        mask = store.load_mask(row.mask)
        assert mask is not None
        expected = mask.apply(State(ticket.parameters, {}))
        found = store.load_state(row.solution)
        assert all(torch.equal(found.parameters[name], tensor) for name, tensor in expected.parameters.items())


def test_learning_rate_rewinding_goes_on_from_the_average(quick: Make, tmp_path: Path) -> None:
    config = quick(
        pruning__rewind="lr", pruning__cycles=1, cycle__epochs=1, methods__swamp__particles={"0": 2, "1": 1}, methods__swamp__swa=False
    )
    rows = list(iterate(config, tmp_path / "run"))
    other = quick(
        pruning__rewind="lr",
        pruning__cycles=1,
        cycle__epochs=1,
        methods__swamp__particles={"0": 2, "1": 1},
        methods__swamp__swa=False,
        keep="last",
    )
    assert list(iterate(other, tmp_path / "last")) == rows  # dropping the first average comes after its last use
    records = [Store(tmp_path / "run").read_value(key) for key in (rows[0].solution, rows[1].solution)]
    assert records[0]["history"] == []  # an average
    assert len(records[1]["history"]) == 1  # a single particle is its own average


def test_learning_rate_rewinding_starts_from_the_average_itself(quick: Make, tmp_path: Path) -> None:
    """A job's key says what it starts from."""
    config = quick(pruning__rewind="lr", pruning__cycles=1, methods__swamp__particles=2, swa__entry="continue", cycle__epochs=1)
    rows = list(iterate(config, tmp_path / "run"))
    store = Store(tmp_path / "run")
    mask, average = store.load_mask(rows[1].mask), store.load_state(rows[0].solution)
    assert mask is not None
    task = open_task(read_config(tmp_path / "run"))
    # the first job of cycle 1, trained here from the average by hand, is the stored particle
    handle = store.solution(rows[0].solution)
    assert handle is not None
    job = JobMaker(read_config(tmp_path / "run"), task).job(handle, mask, Noise(0).fold("cycle", 1, "particle", 0), swa=True)
    assert job.key == rows[1].particles[0]
    assert not any(
        torch.equal(average.parameters["stem.weight"], store.load_state(key).parameters["stem.weight"]) for key in rows[0].particles
    )


def test_the_original_imp_trains_no_ticket(quick: Make, tmp_path: Path) -> None:
    list(iterate(quick(method="imp-original", pruning__cycles=0, ticket__epochs=3), tmp_path / "run"))
    assert "ticket" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    list(iterate(quick(method="imp", pruning__cycles=0, ticket__epochs=3), tmp_path / "other"))
    assert (tmp_path / "other" / "metrics.jsonl").read_text().count("ticket") == 3


def test_particle_and_swa_schedules(quick: Make, tmp_path: Path) -> None:
    config = quick(methods__swamp__particles={"0": 1, "1": 3}, methods__swamp__swa={"0": False, "2": True}, cycle__epochs=4)
    rows = list(iterate(config, tmp_path / "run"))
    assert [len(row.particles) for row in rows] == [1, 3, 3]
    assert [len(row.members) for row in rows] == [0, 3, 3]
    store = Store(tmp_path / "run")
    rates = [store.read_value(row.particles[0])["history"][-1]["learning_rate"] for row in rows]  # type: ignore[index]
    assert rates[0] == rates[1] != rates[2] == config.swa.learning_rate


def test_particles_share_the_first_noise_with_imp(quick: Make, tmp_path: Path) -> None:
    """Runs of one seed share their ticket, and IMP's training is SWAMP's first particle without SWA."""
    imp = list(iterate(quick(method="imp", pruning__cycles=0), tmp_path / "imp"))
    swamp = list(iterate(quick(pruning__cycles=0, methods__swamp__swa=False), tmp_path / "swamp"))
    assert imp[0].solution == swamp[0].particles[0]
