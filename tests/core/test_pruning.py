from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swamp.core.mask import Mask
from swamp.core.pruning import Pruning, highest, keep_highest, magnitude, rounded_share
from swamp.core.state import State


def kept(mask: Mask) -> dict[str, list[bool]]:
    return {name: layer.tolist() for name, layer in mask.layers.items()}


def test_global_magnitude_by_hand() -> None:
    state = State({"a": torch.tensor([0.1, -3.0]), "b": torch.tensor([[2.0], [-0.5]]), "bias": torch.tensor([9.0])}, {})
    mask = Mask.ones({"a": (2,), "b": (2, 1)})
    pruned = keep_highest(magnitude(state, mask), mask, 2)
    assert kept(pruned) == {"a": [False, True], "b": [[True], [False]]}


def test_ties_keep_the_lower_index_in_parameter_order() -> None:
    mask = Mask.ones({"z": (2,), "a": (3,)})  # order is as given, not alphabetical
    scores = {"z": torch.tensor([1.0, 1.0]), "a": torch.tensor([1.0, 2.0, 1.0])}
    assert kept(keep_highest(scores, mask, 3)) == {"z": [True, True], "a": [False, True, False]}


def test_pruned_weights_rank_last_even_below_zeros_and_minus_infinity() -> None:
    mask = Mask({"w": torch.tensor([False, True, True, False])})
    scores = {"w": torch.tensor([9.0, 0.0, float("-inf"), 5.0])}
    assert kept(keep_highest(scores, mask, 2)) == {"w": [False, True, True, False]}
    assert kept(keep_highest(scores, mask, 1)) == {"w": [False, True, False, False]}


def test_nan_and_impossible_counts_are_refused() -> None:
    mask = Mask.ones({"w": (2,)})
    with pytest.raises(ValueError, match="NaN"):
        keep_highest({"w": torch.tensor([1.0, float("nan")])}, mask, 1)
    with pytest.raises(ValueError, match="cannot keep 3 of 2"):
        keep_highest({"w": torch.ones(2)}, mask, 3)


def test_counts_of_the_paper() -> None:
    """50/75/90/95 % are cycles 3, 6, 10, 13 at α = 0.2: SPEC's 48.80, 73.79, 89.26, 94.50 %."""
    pruning = Pruning(prune_fraction=0.2)
    sparsities = [100 * (1 - rounded_share(1_462_704, pruning.density(cycle)) / 1_462_704) for cycle in (3, 6, 10, 13)]
    assert [f"{sparsity:.2f}" for sparsity in sparsities] == ["48.80", "73.79", "89.26", "94.50"]
    assert [f"{100 * float(1 - Pruning(prune_fraction=a).density(c)):.2f}" for a, c in ((0.3, 8), (0.4, 6), (0.5, 4))] == [
        "94.24",
        "95.33",
        "93.75",
    ]


def test_half_rounds_up_and_the_decimal_is_exact() -> None:
    assert [rounded_share(n, Fraction(1, 2)) for n in (1, 3, 5)] == [1, 2, 3]  # not half to even
    assert Pruning(prune_fraction=0.1).density(1) == Fraction(9, 10)  # not the nearest double
    assert rounded_share(5, Pruning(prune_fraction=0.1).density(1)) == 5  # 4.5 exactly; in floats 1 − 0.1 would do, 0.3 × 3 would not
    assert rounded_share(10, Pruning(prune_fraction=0.7).density(1)) == 3


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([-2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 3.5]), min_size=1, max_size=12), min_size=1, max_size=4),
    st.data(),
)
def test_chained_pruning_is_exact_nested_and_best(layers: list[list[float]], data: st.DataObject) -> None:
    state = State({f"w{i}": torch.tensor(values) for i, values in enumerate(layers)}, {})
    mask = Mask.ones({name: tuple(t.shape) for name, t in state.parameters.items()})
    for _ in range(3):
        keep = data.draw(st.integers(0, mask.num_survivors))
        pruned = keep_highest(magnitude(state, mask), mask, keep)
        assert pruned.num_survivors == keep
        assert mask.contains(pruned)
        # an independent ranking: sort (−|w|, position) of the survivors
        values, alive = torch.cat([*state.parameters.values()]).tolist(), torch.cat([*mask.layers.values()]).tolist()
        flat = [(-abs(value), i) for i, value in enumerate(values) if alive[i]]
        expected = {i for _, i in sorted(flat)[:keep]}
        assert set(torch.cat([*pruned.layers.values()]).nonzero().flatten().tolist()) == expected
        mask = pruned


def test_seventeen_million_weights() -> None:
    """More than torch.quantile takes."""
    scores = {"w": torch.arange(17_000_001, dtype=torch.float32)}
    pruned = keep_highest(scores, Mask.ones({"w": (17_000_001,)}), 1000)
    assert pruned.num_survivors == 1000


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf]), st.booleans()), max_size=30),
    st.floats(0, 1),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_the_highest_are_those_of_a_stable_sort(entries: list[tuple[float, bool]], share: float, dtype: torch.dtype) -> None:
    scores, among = (
        torch.tensor([score for score, _ in entries], dtype=dtype),
        torch.tensor([marked for _, marked in entries], dtype=torch.bool),
    )
    num = round(share * int(among.sum()))
    ranked = sorted((index for index, (_, marked) in enumerate(entries) if marked), key=lambda index: (-entries[index][0], index))
    assert sorted(ranked[:num]) == highest(scores, among, num).nonzero().reshape(-1).tolist()


def test_scores_that_are_no_numbers_are_the_highest() -> None:
    """As RigL meets them before the epoch ends that would say so: its counts stay what they are."""
    scores = torch.tensor([1.0, math.nan, 3.0, math.nan, 2.0])
    assert highest(scores, torch.ones(5, dtype=torch.bool), 3).tolist() == [False, True, True, True, False]
    assert highest(scores, torch.ones(5, dtype=torch.bool), 1).tolist() == [False, True, False, False, False]
