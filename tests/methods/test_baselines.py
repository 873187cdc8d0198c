"""What each baseline promises in addition to the contract."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch

from swamp import progress_display
from swamp.core.cost import masked_macs
from swamp.core.mask import Mask
from swamp.core.metric import Metric
from swamp.core.noise import Noise
from swamp.core.pruning import keep_highest, magnitude, rounded_share
from swamp.core.schedules import learning_rates
from swamp.engines.sequential import Config as SequentialConfig
from swamp.engines.sequential import Sequential
from swamp.methods import find_method, grasp, lottery_pools
from swamp.methods.dst import Trial, next_alpha
from swamp.methods.imp import cycles as imp_rows
from swamp.runs.config import Config, resolve
from swamp.runs.context import RunContext
from swamp.runs.opening import make_engine_context, open_task
from swamp.runs.progress import Listeners
from swamp.runs.stored import config_of
from swamp.scores import erk_counts
from swamp.store.directory import Store
from swamp.tasks.image import ImageTask
from swamp.tasks.sampling import balanced_sample, random_sample
from swamp.tasks.task import Task, num_examples
from swamp.training.train import Diverged, Training
from tests.support.runs import contents, iterate, without_checksums

Make = Callable[..., Config]
CPU = torch.device("cpu")


def context(config: Config, directory: Path, task: ImageTask | None = None) -> RunContext:
    """A context to call methods in, without a runner."""
    config, store = resolve(config), Store(directory)
    opened = cast(Task, task or open_task(config))
    engine = Sequential(make_engine_context(config, opened, store), SequentialConfig())
    return RunContext(config, opened, store, engine, lambda _: None)


def test_sam_at_rho_zero_is_imp(quick: Make, tmp_path: Path) -> None:
    imp = list(iterate(quick(method="imp"), tmp_path / "imp"))
    sam = list(iterate(quick(method="imp-sam", **{"methods.imp-sam.rho": 0.0}), tmp_path / "sam"))
    assert [row.metrics for row in imp] == [row.metrics for row in sam]
    assert {n: d for n, d in contents(tmp_path / "imp").items() if n.startswith("objects")} == {
        n: d for n, d in contents(tmp_path / "sam").items() if n.startswith("objects")
    }
    moved = list(iterate(quick(method="imp-sam"), tmp_path / "moved"))
    assert moved[0].solution != imp[0].solution
    assert moved[-1].training_macs > 1.5 * imp[-1].training_macs


def test_methods_that_prune_once_train_longer_from_the_init_and_cost_only_their_own_row(quick: Make, tmp_path: Path) -> None:
    config = quick(method="snip")
    rows = list(iterate(config, tmp_path / "run"))
    assert [row.cycle for row in rows] == [1, 2]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 2 * 2 * config.cycle.epochs  # two targets, two cycles long
    assert not any("ticket" in line for line in lines)
    task = open_task(config)
    for row in rows:
        mask = Store(tmp_path / "run").load_mask(row.mask)
        assert mask is not None
        assert row.cost == pytest.approx(masked_macs(task.macs, mask))
        assert row.training_macs == pytest.approx(3 * row.cost * task.num_examples * 2 * config.cycle.epochs)


@pytest.mark.parametrize("method", ["snip", "grasp", "synflow", "random", "random-erk"])
def test_masks_at_init_do_not_depend_on_how_long_training_is(quick: Make, tmp_path: Path, method: str) -> None:
    """Two runs of other lengths agree in their masks; the ranking saw the init, not a training."""
    module = find_method(method)[0].name
    digests = []
    for length in (0.5, 1.0):
        settings = {f"methods.{module}.length": length, "methods.synflow.iterations": 10}
        rows = iterate(quick(method=method, **settings), tmp_path / str(length))
        digests.append([row.mask for row in rows])
    assert digests[0] == digests[1]


def test_magnitude_prunes_imps_first_solution_at_once(quick: Make, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    imp = list(iterate(quick(method="imp"), tmp_path / "imp", cache))
    rows = list(iterate(quick(method="magnitude"), tmp_path / "magnitude", cache))
    dense = Store(tmp_path / "imp").load_state(imp[0].solution)
    ones = Mask.ones(open_task(quick()).prunable)
    for row in rows:
        expected = keep_highest(magnitude(dense, ones), ones, rounded_share(ones.num_weights, quick().pruning.density(row.cycle)))
        assert row.mask == expected.digest
    assert rows[-1].cost == pytest.approx(imp[0].cost + rows[-1].macs)


def test_rigl_starts_with_erk_and_keeps_each_layers_count(quick: Make, tmp_path: Path) -> None:
    config = quick(method="rigl", methods__rigl__interval=2)
    for row in iterate(config, tmp_path / "run"):
        mask = Store(tmp_path / "run").load_mask(row.mask)
        assert mask is not None
        counts = erk_counts(open_task(config).prunable, row.num_survivors)
        assert {name: int(layer.sum()) for name, layer in mask.layers.items()} == counts
    moved = [line for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines() if "sparsity" in line]
    assert len(moved) == 2 * 2 * config.cycle.epochs


def test_rigl_swamp_hands_on_weights_and_momentum_at_three_quarters(quick: Make, tmp_path: Path) -> None:
    config = quick(**{"method": "rigl-swamp", "methods.rigl-swamp.particles": 2, "methods.rigl-swamp.interval": 2, "cycle.epochs": 4})
    rows = list(iterate(config, tmp_path / "run"))
    ctx = context(config, tmp_path / "run")
    list(config.method_module.run(ctx, config.selected("method")))
    firsts = [job for job, _ in ctx.trainings if job.span == (0, 6)]
    seconds = [job for job, _ in ctx.trainings if job.span == (6, 8)]
    assert (len(firsts), len(seconds)) == (2, 4)
    assert all(job.rule is None and job.swa is not None for job in seconds)
    task = ctx.task
    rates = learning_rates(seconds[0].schedule, task.steps_per_epoch, seconds[0].swa)
    assert set(rates[6 * task.steps_per_epoch :]) == {config.swa.learning_rate}
    store = Store(tmp_path / "run")
    middle = store.load_state(firsts[0].key)
    assert {name for name in middle.memory if name.startswith("momentum/")} == {f"momentum/{name}" for name in middle.parameters}
    assert store.solution(firsts[0].key).mask == rows[0].mask  # type: ignore[union-attr]
    # a particle starts with the momentum that the first part ended with
    training = Training(task, seconds[0], middle, CPU)
    name = next(iter(task.prunable))
    assert torch.equal(training.learner.slots["momentum"][name], middle.memory[f"momentum/{name}"])
    assert training.learner.slots["momentum"][name].any()
    assert len(rows[0].members) == 2
    assert rows[0].cost == pytest.approx(3 * rows[0].macs)  # the first part and two particles


def test_dst_reports_what_it_reached(quick: Make, tmp_path: Path) -> None:
    config = quick(method="dst", methods__dst__trials=2)
    rows = list(iterate(config, tmp_path / "run"))
    for row in rows:
        mask = Store(tmp_path / "run").load_mask(row.mask)
        assert mask is not None
        assert mask.num_survivors == row.num_survivors
        state = Store(tmp_path / "run").load_state(row.solution)
        assert all(not state.parameters[name][~layer].any() for name, layer in mask.layers.items())


@pytest.mark.parametrize("collapse", [math.inf, 3e-3])
def test_the_search_for_alpha_brackets_and_halves(collapse: float) -> None:
    """Against a made-up law, density = (1 + α/1e-4)⁻¹, dense again above some α, and diverging above ten times that."""
    tried: dict[float, Trial] = {}
    for _ in range(12):
        alpha = next_alpha(tried, target=0.05)
        assert alpha is not None
        assert alpha not in tried
        density = 1 / (1 + alpha / 1e-4) if alpha < collapse else 0.7 if alpha < 10 * collapse else math.inf
        tried[alpha] = Trial(density, too_large=alpha >= collapse)
    assert min(abs(trial.density - 0.05) for trial in tried.values()) < 0.005


def test_the_search_for_alpha_goes_up_whatever_the_noise_among_small_ones_and_tries_none_twice() -> None:
    tried = {1e-8: Trial(0.9991), 1e-7: Trial(0.9990), 1e-6: Trial(0.9995)}
    assert next_alpha(tried, 0.5) == 1e-5
    assert next_alpha({**tried, 1e-5: Trial(0.9999)}, 0.5) == 1e-4
    assert next_alpha({**tried, 1e-5: Trial(0.9999, too_large=True)}, 0.5) == pytest.approx(3.16e-6)
    assert next_alpha({1e-5: Trial(0.1, too_large=True)}, 0.5) == 1e-6
    assert next_alpha({1e-6: Trial(0.9), 1.01e-6: Trial(0.1)}, 0.5) is None  # 1.005e-6 rounds to one of them


def test_a_search_that_missed_its_target_says_so_in_the_row(quick: Make, tmp_path: Path) -> None:
    config = quick(method="dst", methods__dst__trials=1, pruning__targets=(2,))
    (row,) = iterate(config, tmp_path / "run")
    assert row.notes
    assert row.notes[0] == f"the search for α ended at {100 * row.sparsity:.2f} % sparsity instead of 75.00 % (values of α tried so far: 1)"
    close = quick(method="dst", methods__dst__trials=1, methods__dst__tolerance=1e6, pruning__targets=(2,))
    (row,) = iterate(close, tmp_path / "close")
    assert not any("search" in note for note in row.notes or ())


def test_grasp_halves_its_sample_by_class_unless_it_is_shuffled(monkeypatch: pytest.MonkeyPatch, quick: Make, tmp_path: Path) -> None:
    """The original concatenates its sample class by class before it halves it."""
    halves: list[list[int]] = []
    ctx = context(quick(method="grasp"), tmp_path)

    def seen(model: Any, losses: Any, names: Any) -> Any:
        halves[:] = [ctx.task.labels(loss.args[0]).tolist() for loss in losses]  # type: ignore[union-attr]
        return {name: torch.zeros(ctx.task.prunable[name]) for name in names}

    monkeypatch.setattr(grasp, "grasp", seen)
    monkeypatch.setattr(grasp, "train_targets", lambda ctx, length, masks: masks)
    grasp.run(ctx, grasp.Config(per_class=2))
    first, second = halves
    assert (first, second) == ([0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [5, 5, 6, 6, 7, 7, 8, 8, 9, 9])
    grasp.run(ctx, grasp.Config(per_class=2, order="shuffled"))
    assert sorted(halves[0] + halves[1]) == first + second
    assert set(halves[0]) & set(halves[1])


def test_grasp_of_a_run_that_was_begun_before_the_order_could_be_chosen_stays_shuffled(quick: Make) -> None:
    stored = msgspec.to_builtins(quick(method="grasp"))
    assert stored["methods"]["grasp"].pop("order") == "by-class"
    assert config_of({"config": stored}).selected("method").order == "shuffled"
    assert config_of({"config": msgspec.to_builtins(quick(method="grasp"))}).selected("method").order == "by-class"


def test_a_trial_that_diverges_only_bounds_the_search(quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = quick(method="dst", methods__dst__trials=3, pruning__targets=(2,))
    ctx = context(config, tmp_path / "run")
    train = ctx.train

    def diverging(jobs: Any) -> Any:
        jobs = list(jobs)
        if jobs[0].rule.alpha > 1e-6:
            raise Diverged("the loss became inf")
        return train(jobs)

    monkeypatch.setattr(ctx, "train", diverging)
    (row,) = config.method_module.run(ctx, config.selected("method"))
    assert row.cycle == 2
    monkeypatch.setattr(ctx, "train", lambda jobs: diverging([SimpleNamespace(rule=SimpleNamespace(alpha=1.0))]))
    with pytest.raises(Diverged, match="all 3 trials"):
        list(config.method_module.run(ctx, config.selected("method")))


# -- lottery pools ----------------------------------------------------------------------------------------------------------------


class Untouchable(ImageTask):
    """The test set raises when touched."""

    def predict(self, model: torch.nn.Module, split: str) -> Any:
        assert split != "test", "the test set was touched"
        return super().predict(model, split)


def test_lottery_pools_never_touch_test_and_never_train_on_validation(quick: Make, tmp_path: Path) -> None:
    config = quick(**{"method": "lottery-pools", "methods.lottery-pools.shares": (0.1, 0.5), "cycle.epochs": 3})
    assert config.tasks["image"]["validation"] == 0.1
    task = Untouchable(config.selected("task"))
    held_out, trained_on = task.data.splits["validation"][0], task.data.splits["train"][0]  # type: ignore[union-attr]
    assert (len(held_out), len(trained_on)) == (13, 112)
    assert not (held_out.flatten(1)[:, None] == trained_on.flatten(1)[None]).all(2).any()
    ctx = context(config, tmp_path / "run", task)
    rows = list(config.method_module.run(ctx, config.selected("method")))
    assert len(rows) == 3
    # what is chosen is never worse by validation than IMP's own
    for row, (_, imp) in zip(rows, [pair for pair in ctx.trainings if pair[0].key != ctx.ticket_key], strict=True):
        assert lottery_pools.accuracy(ctx, row.solution) >= lottery_pools.accuracy(ctx, imp)
        assert row.mask.num_survivors == rounded_share(row.mask.num_weights, config.pruning.density(row.cycle))


def test_rows_of_methods_that_select_say_so(quick: Make, tmp_path: Path) -> None:
    config = quick(**{"method": "lottery-pools", "methods.lottery-pools.shares": (0.5,), "pruning.cycles": 1})
    assert [row.selected_on for row in iterate(config, tmp_path / "run")] == ["validation"] * 2


def test_lottery_pools_are_made_where_they_are_asked_for(quick: Make, tmp_path: Path) -> None:
    """Of each cycle they take dozens of evaluations."""
    changes = {"method": "lottery-pools", "methods.lottery-pools.shares": (0.5,), "pruning.targets": (2,)}
    some = list(iterate(quick(**changes), tmp_path / "some"))
    every = list(iterate(quick(**{**changes, "pruning.targets": ()}), tmp_path / "all"))
    assert without_checksums(some) == without_checksums(every[2:])


def test_mixtures_are_counted_where_people_wait_for_them(
    quick: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_display, "LINE_SECONDS", 0.0)
    config = quick(**{"method": "lottery-pools", "methods.lottery-pools.shares": (0.1, 0.5), "pruning.cycles": 1})
    plain, live = progress_display.ProgressLines(), progress_display.ProgressBars()
    list(iterate(config, tmp_path / "run", listener=Listeners(plain, live)))
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "mixture" in line] == [
        f"cycle {cycle} with {1 - cycle}: mixture {number}/2" for cycle in (0, 1) for number in (1, 2)
    ]
    assert plain.time_left.share == 1.0  # they are no part of what was planned
    assert not live.training_bars


def test_a_mixture_is_what_it_says(quick: Make, tmp_path: Path) -> None:
    config = quick(method="imp", pruning__cycles=1)
    ctx = context(config, tmp_path / "run")
    first, second = (row.solution for row in config.method_module.run(ctx, config.selected("method")))
    keep = config.pruning.density(1)
    mixed = ctx.mix([(0.25, second), (0.75, first)], keep)
    mask, state = ctx.mask(mixed), mixed.load()
    blend = {n: 0.25 * second.load().parameters[n] + 0.75 * w for n, w in first.load().parameters.items()}
    for name, weight in blend.items():
        alive = mask.layers.get(name)
        expected = weight if alive is None else weight * alive
        torch.testing.assert_close(state.parameters[name], expected, rtol=0, atol=1e-7)
    sizes = torch.cat([blend[name].abs().reshape(-1) for name in mask.layers])
    alive = torch.cat([layer.reshape(-1) for layer in mask.layers.values()])
    assert sizes[alive].min() >= sizes[~alive].max()
    trial = ctx.mix([(0.25, second), (0.75, first)], keep, trial=True)
    assert trial.load().digest() == state.digest()


@pytest.mark.parametrize("maximise", [True, False])
def test_lottery_pools_know_what_is_better(quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maximise: bool) -> None:
    config = quick(**{"method": "lottery-pools", "methods.lottery-pools.shares": (0.5,), "pruning.cycles": 1})
    ctx = context(config, tmp_path / "run")
    monkeypatch.setattr(type(ctx.task), "metrics", {"accuracy": Metric("accuracy", maximise=maximise)})
    # a mixture is worth 0.9 and a solution of IMP 0.5, whatever that means
    stored = {solution.key for solution in (row.solution for row in imp_rows(ctx))}
    monkeypatch.setattr(ctx, "evaluate", lambda solution, split: {"accuracy": 0.5 if solution.key in stored else 0.9})
    rows = list(config.method_module.run(ctx, config.selected("method")))
    assert [row.solution.key in stored for row in rows] == [not maximise] * 2


def test_dst_keeps_a_network_that_serves_two_rows(quick: Make, tmp_path: Path) -> None:
    config = quick(method="dst", keep="last", methods__dst__trials=1, methods__dst__tolerance=100.0)
    rows = list(iterate(config, tmp_path / "run"))
    assert len({row.solution for row in rows}) == 1
    assert Store(tmp_path / "run").has_arrays(rows[-1].solution)


# -- samples ----------------------------------------------------------------------------------------------------------------------


def test_samples(quick: Make) -> None:
    task: Any = open_task(quick())
    (balanced,) = balanced_sample(task, Noise(0), 3, CPU)
    assert torch.bincount(balanced[1]).tolist() == [3] * 10
    (random,) = random_sample(task, Noise(0), 35, CPU)
    assert num_examples(random) == 35  # a batch of 32 and three more
    (again,) = random_sample(task, Noise(0), 35, CPU)
    assert torch.equal(random[0], again[0])
    (other,) = random_sample(task, Noise(1), 35, CPU)
    assert not torch.equal(random[0], other[0])
    (everything,) = random_sample(task, Noise(0), 10_000, CPU)
    assert num_examples(everything) == task.num_examples
