"""Runs whose masks follow a pattern."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from swamp.core.mask import Mask
from swamp.runs.config import Config, config_hash, deciding_settings
from swamp.runs.stored import load_network
from tests.support.runs import iterate

Quick = Callable[..., Config]


def masks(config: Config, out: Path) -> list[Mask]:
    return [load_network(out, row)[1] for row in iterate(config, out)]


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
    assert not out.exists()


def test_another_pattern_is_another_configuration(quick: Quick) -> None:
    assert deciding_settings(quick(pruning__pattern="channel"))["pruning.pattern"] == "channel"
    assert config_hash(quick()) != config_hash(quick(pruning__pattern="channel"))
