from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from swamp.core.mask import Mask
from swamp.core.patterns import Pattern
from swamp.core.pruning import Pruning, keep_highest, rounded_share

SHAPES = {"stem": (16, 3, 3, 3), "conv": (16, 16, 3, 3), "short": (32, 16, 1, 1), "linear": (10, 30)}


def scores(seed: int = 0) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {name: torch.rand(shape, generator=draw) for name, shape in SHAPES.items()}


def pruned(pattern: str, num_keep: int, mask: Mask | None = None, seed: int = 0) -> Mask:
    return keep_highest(scores(seed), mask or Mask.ones(SHAPES), num_keep, pattern)


def groups(layer: Tensor, size: int) -> Tensor:
    """A layer's whole groups of neighbouring input channels, one a line."""
    inner = layer.movedim(1, -1)
    return inner[..., : inner.shape[-1] // size * size].reshape(-1, size)


@pytest.mark.parametrize(("pattern", "keep", "size"), [("2:4", 2, 4), ("1:4", 1, 4), ("3:8", 3, 8)])
def test_groups_of_n_m_are_whole_or_pruned(pattern: str, keep: int, size: int) -> None:
    total = Mask.ones(SHAPES).num_weights
    least = Pattern.parse(pattern).fewest_weights(SHAPES)
    assert least == math.ceil(total * keep / size)
    for num_keep in (total - 1, (total + least) // 2 + 100):
        mask = pruned(pattern, num_keep)
        assert num_keep - (size - keep) < mask.num_survivors <= num_keep
        for layer in mask.layers.values():
            assert set(groups(layer, size).sum(1).tolist()) <= {keep, size}
    mask = pruned(pattern, least)
    assert all(set(groups(layer, size).sum(1).tolist()) <= {keep} for layer in mask.layers.values())
    assert mask.layers["stem"].all()  # three input channels are no group
    with pytest.raises(ValueError, match=f"leaves at least {least} weights, but {least - 1} are asked for"):
        pruned(pattern, least - 1)


def test_the_lowest_of_a_group_go_and_the_lowest_groups_go_first() -> None:
    layer = {"w": torch.tensor([[1.0, 9, 2, 8], [5, 6, 7, 3]])}
    ones = Mask.ones({"w": (2, 4)})
    assert keep_highest(layer, ones, 6, "2:4").layers["w"].int().tolist() == [[0, 1, 0, 1], [1, 1, 1, 1]]
    assert keep_highest(layer, ones, 4, "2:4").layers["w"].int().tolist() == [[0, 1, 0, 1], [0, 1, 1, 0]]


def test_blocks_live_and_die_together() -> None:
    layer = {"w": torch.arange(30.0).reshape(5, 6)}
    mask = keep_highest(layer, Mask.ones({"w": (5, 6)}), 20, "block:2x4")
    assert mask.layers["w"].int().tolist() == [[0] * 6, [0] * 6, [1] * 6, [1] * 6, [1] * 6]
    mask = pruned("block:4x4", 1500)
    assert 1500 - 16 < mask.num_survivors <= 1500
    blocks = mask.layers["conv"].reshape(4, 4, 36, 4).transpose(1, 2).reshape(-1, 16).sum(1)
    assert set(blocks.tolist()) == {0, 16}


def test_channels_are_those_that_are_read_and_one_always_stays() -> None:
    mask = pruned("channel", 900)
    assert 900 - 144 < mask.num_survivors <= 900
    for layer in mask.layers.values():
        columns = layer.transpose(0, 1).flatten(1)
        assert columns.all(1).equal(columns.any(1))
    least = Pattern.parse("channel").fewest_weights(SHAPES)
    last = pruned("channel", least)
    assert all(int(layer.transpose(0, 1).flatten(1).any(1).sum()) == 1 for layer in last.layers.values())
    best = {name: score.transpose(0, 1).flatten(1).sum(1).argmax() for name, score in scores().items()}
    assert all(last.layers[name][:, best[name]].all() for name in SHAPES)


def test_filters_are_rows_of_a_layer_and_one_always_stays() -> None:
    layer = {"w": torch.tensor([[1.0, 9.0], [4.0, 4.0], [6.0, 5.0]])}
    assert keep_highest(layer, Mask.ones({"w": (3, 2)}), 5, "filter").layers["w"].int().tolist() == [[1, 1], [0, 0], [1, 1]]
    mask = pruned("filter", 900)
    assert 900 - 144 < mask.num_survivors <= 900
    for found in mask.layers.values():
        rows = found.flatten(1)
        assert rows.all(1).equal(rows.any(1))
    last = pruned("filter", Pattern.parse("filter").fewest_weights(SHAPES))
    assert {name: found.flatten(1).any(1).nonzero().tolist() for name, found in last.layers.items()} == {
        name: [[int(score.flatten(1).sum(1).argmax())]] for name, score in scores().items()
    }


@pytest.mark.parametrize("pattern", ["2:4", "block:4x4", "block:1x3", "channel", "filter"])
def test_masks_are_nested_whatever_the_scores_say_later(pattern: str) -> None:
    mask = Mask.ones(SHAPES)
    for cycle in range(1, 4):
        num_keep = rounded_share(mask.num_weights, Pruning(prune_fraction=0.15).density(cycle))
        smaller = pruned(pattern, num_keep, mask, seed=cycle)
        assert mask.contains(smaller)
        assert num_keep - 144 < smaller.num_survivors <= num_keep
        mask = smaller


def test_groups_of_single_weights_are_plain_pruning() -> None:
    assert pruned("block:1x1", 1234).digest == pruned("unstructured", 1234).digest == keep_highest(scores(), Mask.ones(SHAPES), 1234).digest


@pytest.mark.parametrize("pattern", ["", "4:4", "0:4", "2:4:8", "block", "block:0x4", "channels", "filters"])
def test_other_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="expected unstructured, N:M"):
        Pruning(pattern=pattern)
