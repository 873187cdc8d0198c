"""Runs whose masks follow a pattern."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

from swamp.core.allocation import COUNTS, ranking
from swamp.core.mask import Mask
from swamp.core.rules import Gradual
from swamp.runs.checks import check_pattern
from swamp.runs.config import Config, build_config, config_hash, deciding_settings, resolve
from swamp.runs.coupling import coupling_of
from swamp.runs.job_maker import JobMaker
from swamp.runs.opening import RunRequest, open_task, prepare
from swamp.runs.stored import load_network
from swamp.tasks.custom import CustomTask
from swamp.tasks.own_loop import OwnLoopTask
from swamp.tasks.task import Task
from tests.support.runs import iterate

Quick = Callable[..., Config]


def masks(config: Config, out: Path) -> list[Mask]:
    return [load_network(out, row)[1] for row in iterate(config, out)]


@pytest.mark.parametrize(("method", "allocation"), [("imp", "erk"), ("snip", "uniform"), ("synflow", "erk"), ("gradual", "uniform")])
def test_every_kind_of_ranking_follows_the_allocation(method: str, allocation: str, quick: Quick, tmp_path: Path) -> None:
    settings = {
        "pruning__cycles": 1,
        "cycle__epochs": 1,
        "pruning__allocation": allocation,
        "pruning__targets": () if method == "imp" else (1,),
    }
    found = masks(quick(method=method, **settings), tmp_path)[-1]
    expected = COUNTS[allocation]({name: tuple(layer.shape) for name, layer in found.layers.items()}, 2404)
    assert {name: int(layer.sum()) for name, layer in found.layers.items()} == expected


@pytest.mark.parametrize("method", ["imp", "swamp", "magnitude", "snip", "grasp", "synflow", "gradual"])
def test_every_ranking_follows_the_pattern(method: str, quick: Quick, tmp_path: Path) -> None:
    settings = {
        "pruning__cycles": 1,
        "cycle__epochs": 1,
        "pruning__pattern": "block:4x1",
        "pruning__targets": () if method in ("imp", "swamp") else (1,),
    }
    found = masks(quick(method=method, **settings), tmp_path)[-1]
    assert 4808 // 2 - 4 < found.num_survivors <= 4808 // 2
    for layer in found.layers.values():
        blocks = layer.reshape(layer.shape[0] // 4, 4, -1).sum(1)
        assert set(blocks.unique().tolist()) <= {0, 4}


@pytest.mark.parametrize("method", ["imp", "snip", "synflow", "gradual", "lottery-pools"])  # one of each kind of ranking
def test_every_ranking_follows_the_coupling(method: str, quick: Quick, tmp_path: Path) -> None:
    """A channel is gone from all layers or from none: blocks 0 to 2 of the network share streams, and the stem's is the first of them."""
    settings = {
        "pruning__cycles": 1,
        "cycle__epochs": 1,
        "pruning__pattern": "coupled:2",
        "pruning__targets": () if method in ("imp", "swamp", "lottery-pools") else (1,),
    }
    config = quick(method=method, **settings)
    found = masks(config, tmp_path)[-1]
    assert 0.3 * found.num_weights < found.num_survivors <= 0.5 * found.num_weights
    coupling = coupling_of(open_task(config))
    alive = torch.zeros(coupling.num_channels, dtype=torch.bool)
    for name, layer in found.layers.items():
        for dimension, channels in enumerate(coupling.channels(name)):
            left = layer.transpose(0, dimension).flatten(1).any(1)
            alive[channels[left & (channels >= 0)]] = True
    for name, layer in found.layers.items():
        rows, columns = ((channels < 0) | alive[channels] for channels in coupling.channels(name))
        assert torch.equal(layer, (rows[:, None] & columns)[:, :, None, None].expand_as(layer))
    assert all(int(group.sum()) % 2 == 0 for group in alive.split(coupling.widths))


def test_two_of_four_with_swamp(quick: Quick, tmp_path: Path) -> None:
    found = masks(quick(pruning__cycles=1, pruning__pattern="2:4", cycle__epochs=1), tmp_path)
    for name, layer in found[1].layers.items():
        if name == "stem.weight":
            assert layer.all()  # one input channel is no group
        else:
            assert set(layer.movedim(1, -1).reshape(-1, 4).sum(1).tolist()) == {2}


def test_what_a_pattern_cannot_do_is_said_before_anything_is_written(quick: Quick, tmp_path: Path) -> None:
    out = tmp_path / "a"
    with pytest.raises(ValueError, match=r"pruning.pattern = '2:4' leaves at least 2404 of 4808 weights, and cycle 2 asks for 1202"):
        next(iterate(quick(pruning__pattern="2:4"), out))
    with pytest.raises(ValueError, match="method 'rigl' makes its masks without a ranking"):
        next(iterate(quick(method="rigl", pruning__pattern="channel"), out))
    with pytest.raises(ValueError, match=r"method 'random' makes its masks without a ranking, which pruning.allocation = 'erk' is for"):
        next(iterate(quick(method="random", pruning__allocation="erk"), out))
    with pytest.raises(ValueError, match=r"pruning.pattern = '1:2' thins out all layers alike by itself"):
        next(iterate(quick(pruning__pattern="1:2", pruning__allocation="uniform", pruning__cycles=1), out))
    with pytest.raises(ValueError, match=r"pruning.allocation = 'erk' is for layers, and pruning.pattern = 'coupled' prunes channels that"):
        next(iterate(quick(pruning__pattern="coupled", pruning__allocation="erk", pruning__cycles=1), out))
    with pytest.raises(
        ValueError,
        match=r"pruning.pattern = 'coupled:4' leaves at least 628 of 4808 weights, and cycle 2 asks for 192: .*, or the multiple",
    ):
        next(iterate(quick(pruning__pattern="coupled:4", pruning__cycles=3, pruning__prune_fraction=0.8), out))
    few = r"pruning.pattern = 'filter' leaves at least 9 weights of stem.weight, and by pruning.allocation = 'uniform' cycle 3 asks for 7:"
    with pytest.raises(ValueError, match=few):
        next(iterate(quick(pruning__pattern="filter", pruning__allocation="uniform", pruning__cycles=3, pruning__prune_fraction=0.55), out))
    assert not out.exists()


def test_channels_of_a_transposed_convolution_are_refused() -> None:
    data = torch.randn(8, 2, 4, 4), torch.randn(8, 3, 8, 8)
    task = CustomTask(nn.ConvTranspose2d(2, 3, 2, stride=2), data, data)
    for pattern in ("channel", "filter", "2:4"):
        with pytest.raises(ValueError, match=f"pruning.pattern = '{pattern}' takes .* and weight is transposed: exclude it"):
            check_pattern(build_config("custom", {"pruning.pattern": pattern, "pruning.cycles": 1}), task)


def test_models_without_a_graph_or_without_channels_are_refused_in_a_sentence() -> None:
    data = torch.randn(8, 4), torch.zeros(8).long()

    def refusal(task: Task) -> str:
        with pytest.raises(ValueError, match="the pattern coupled") as found:
            check_pattern(build_config("custom", {"pruning.pattern": "coupled", "pruning.cycles": 1}), task)
        return str(found.value)

    normed = CustomTask(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)), data, data)
    assert refusal(normed).endswith("finds no channels that could be left out of this model: they enter layer_norm (1)")
    assert "cannot read: " in refusal(CustomTask(Branching(), data, data))
    loop = OwnLoopTask(lambda model, run: None, lambda: nn.Linear(4, 2), lambda model: 0.0)
    assert refusal(loop).endswith("only your own training loop knows its inputs")


class Branching(nn.Module):
    """What it computes depends on a value, which no graph can tell."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu() if x.sum() > 0 else self.first(x))


def test_a_coupling_is_part_of_keys_only_where_it_decides(quick: Quick) -> None:
    plain, coupled = (JobMaker(config, open_task(config)) for config in (resolve(quick()), resolve(quick(pruning__pattern="coupled:8"))))
    assert plain.ranking == {"pattern": "unstructured"}
    assert sorted(coupled.ranking) == ["coupling", "pattern"]
    rule = Gradual(num_keep=5, interval=1, begin=0.0, end=1.0, **coupled.ranking)
    assert msgspec.json.decode(msgspec.json.encode(rule), type=Gradual) == rule
    assert rule.ranking == coupled.ranking


def test_an_allocation_of_its_own_has_keys_of_its_own_and_the_global_one_those_of_before() -> None:
    assert ranking("unstructured", "global") == {"pattern": "unstructured"}
    assert ranking("unstructured", "erk") == {"pattern": "unstructured", "allocation": "erk"}
    rule: dict[str, Any] = {"num_keep": 5, "interval": 1, "begin": 0.0, "end": 1.0}
    assert "allocation" not in msgspec.to_builtins(Gradual(**rule))
    assert Gradual(**rule, allocation="uniform").ranking["allocation"] == "uniform"


def test_plans_of_other_rankings_share_no_trainings_but_the_first(quick: Quick, tmp_path: Path) -> None:
    changes: list[dict[str, str]] = [{}, {"pruning__allocation": "erk"}, {"pruning__pattern": "filter"}]
    configs = [quick(method="imp", pruning__cycles=1, **change) for change in changes]
    plans = [run.make_plan() for run in prepare([RunRequest(config, tmp_path / str(i)) for i, config in enumerate(configs)])]
    keys = [{job.key for job in plan.jobs} for plan in plans]
    assert len(keys[0] & keys[1] & keys[2]) == 2  # the ticket and cycle 0
    assert len(set().union(*keys)) == 2 + 3


def test_another_pattern_is_another_configuration(quick: Quick) -> None:
    assert deciding_settings(quick(pruning__pattern="channel"))["pruning.pattern"] == "channel"
    assert config_hash(quick()) != config_hash(quick(pruning__pattern="channel"))
