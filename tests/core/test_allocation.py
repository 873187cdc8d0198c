from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swamp.core.allocation import COUNTS, Allocation
from swamp.core.mask import Mask
from swamp.core.pruning import Pruning, keep_highest, rounded_share

SHAPES = {"stem": (4, 3, 3, 3), "conv": (8, 4, 3, 3), "out": (10, 8)}


def scores(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {name: torch.rand(shape, generator=draw) * (index + 1) for index, (name, shape) in enumerate(shapes.items())}


def test_each_layer_keeps_its_own_highest_by_hand() -> None:
    layers = {"a": torch.tensor([1.0, 2.0, 3.0, 4.0]), "b": torch.tensor([10.0, 30.0, 20.0, 40.0])}
    ones = Mask.ones({"a": (4,), "b": (4,)})
    everywhere = keep_highest(layers, ones, 4)
    assert [layer.int().tolist() for layer in everywhere.layers.values()] == [[0, 0, 0, 0], [1, 1, 1, 1]]
    alike = keep_highest(layers, ones, 4, allocation="uniform")
    assert [layer.int().tolist() for layer in alike.layers.values()] == [[0, 0, 1, 1], [0, 1, 0, 1]]
    # of an odd number the first layer gets the one that is left over
    assert [int(layer.sum()) for layer in keep_highest(layers, ones, 5, allocation="uniform").layers.values()] == [3, 2]


def test_erk_keeps_small_layers_denser_by_hand() -> None:
    ones = Mask.ones({"small": (2, 3), "large": (10, 20)})
    found = keep_highest(scores({"small": (2, 3), "large": (10, 20)}, 0), ones, 70, allocation="erk")
    # 70 · 5 / 35 = 10 exceed the 6 of the small layer, which stays dense
    assert [int(layer.sum()) for layer in found.layers.values()] == [6, 64]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=3), min_size=1, max_size=5),
    st.sampled_from(["uniform", "erk"]),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.integers(0, 9),
)
def test_chained_pruning_is_exact_and_nested(shapes: list[list[int]], allocation: Allocation, shares: list[float], seed: int) -> None:
    """Shares of the largest remainder are not monotone: a layer's share may grow as the total falls. It never gets more than it has."""
    named = {f"w{index}": tuple(shape) for index, shape in enumerate(shapes)}
    mask = Mask.ones(named)
    for step, share in enumerate(shares):
        num_keep = round(share * mask.num_survivors)
        pruned = keep_highest(scores(named, seed + step), mask, num_keep, allocation=allocation)
        assert pruned.num_survivors == num_keep
        assert mask.contains(pruned)
        mask = pruned


@pytest.mark.parametrize("allocation", ["uniform", "erk"])
def test_counts_of_a_dense_start_are_those_of_random_pruning(allocation: Allocation) -> None:
    mask = Mask.ones(SHAPES)
    for cycle in range(6):
        num_keep = rounded_share(mask.num_weights, Pruning(prune_fraction=0.3).density(cycle))
        found = keep_highest(scores(SHAPES, cycle), mask, num_keep, allocation=allocation)
        assert {name: int(layer.sum()) for name, layer in found.layers.items()} == COUNTS[allocation](SHAPES, num_keep)


@pytest.mark.parametrize("pattern", ["filter", "channel", "block:2x2"])
def test_with_a_pattern_each_layer_keeps_whole_groups(pattern: str) -> None:
    mask = Mask.ones(SHAPES)
    for num_keep in (300, 200):
        smaller = keep_highest(scores(SHAPES, num_keep), mask, num_keep, pattern, "uniform")
        assert mask.contains(smaller)
        largest = {"filter": {"stem": 27, "conv": 36, "out": 8}, "channel": {"stem": 36, "conv": 72, "out": 10}}.get(pattern, {})
        for name, count in COUNTS["uniform"](SHAPES, num_keep, {n: int(layer.sum()) for n, layer in mask.layers.items()}).items():
            assert count - largest.get(name, 4) < int(smaller.layers[name].sum()) <= count
        mask = smaller


def test_what_has_nothing_left_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot keep 9 of 8"):
        keep_highest({"a": torch.ones(8)}, Mask.ones({"a": (8,)}), 9, allocation="uniform")
    with pytest.raises(ValueError, match="NaN"):
        keep_highest({"a": torch.full((8,), math.nan)}, Mask.ones({"a": (8,)}), 4, allocation="erk")
