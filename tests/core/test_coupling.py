"""The pattern `coupled`, computed by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from swamp.core.coupling import Coupling, as_ranges, expanded, fewest_coupled_weights
from swamp.core.mask import Mask
from swamp.core.pruning import keep_highest

# A stream of three channels: the first layer writes it, and its two inputs stay; the second layer reads it, and its output stays.
STREAM = Coupling((3,), {"a": (((0, 3, 1),), ((-1, 1, 2),)), "b": (((-1, 1, 1),), ((0, 3, 1),))})
SHAPES = {"a": (3, 2), "b": (1, 3)}
SCORES = {"a": torch.tensor([[3.0, 3], [1, 1], [4, 4]]), "b": torch.tensor([[0.0, 9, 1]])}  # means 2, 11/3 and 3


def kept(num: int, pattern: str = "coupled", mask: Mask | None = None, allocation: str = "global") -> list[list[list[int]]]:
    found = keep_highest(SCORES, mask or Mask.ones(SHAPES), num, pattern, allocation, STREAM)  # type: ignore[arg-type]
    return [layer.int().tolist() for layer in found.layers.values()]


def test_the_channel_with_the_lowest_mean_over_all_layers_goes_first() -> None:
    assert kept(9) == [[[1, 1]] * 3, [[1, 1, 1]]]
    assert kept(8) == kept(6) == [[[0, 0], [1, 1], [1, 1]], [[0, 1, 1]]]
    assert kept(5) == kept(3) == [[[0, 0], [1, 1], [0, 0]], [[0, 1, 0]]]
    assert kept(5, allocation="uniform") == kept(5)
    with pytest.raises(ValueError, match="leaves at least 3 weights, but 2 are asked for"):
        kept(2)
    assert fewest_coupled_weights(SHAPES, STREAM, 1) == 3


def test_a_multiple_is_left() -> None:
    assert kept(8, "coupled:2") == kept(6, "coupled:2") == kept(6)
    with pytest.raises(ValueError, match="leaves at least 6 weights"):
        kept(5, "coupled:2")
    assert fewest_coupled_weights(SHAPES, STREAM, 2) == 6
    assert fewest_coupled_weights(SHAPES, STREAM, 4) == 9


def test_what_has_gone_stays_gone_and_counts_no_more() -> None:
    before = Mask({"a": torch.tensor([[1, 1], [0, 0], [1, 1]]).bool(), "b": torch.tensor([[1, 0, 1]]).bool()})
    assert kept(6, mask=before) == kept(99, mask=before) == [[[1, 1], [0, 0], [1, 1]], [[1, 0, 1]]]
    assert kept(4, mask=before) == [[[0, 0], [0, 0], [1, 1]], [[0, 0, 1]]]


def test_a_weight_goes_with_the_first_of_its_two_channels() -> None:
    """The layer between two groups; its four weights are one for each pair of channels."""
    coupling = Coupling((2, 2), {"w": (((0, 2, 1),), ((2, 2, 1),))})
    scores = {"w": torch.tensor([[1.0, 2], [3, 10]])}  # rows 1.5 and 6.5, columns 2 and 6
    ones = Mask.ones({"w": (2, 2)})
    left = [keep_highest(scores, ones, num, "coupled", coupling=coupling).layers["w"].int().tolist() for num in (3, 1)]
    assert left == [[[0, 0], [1, 1]], [[0, 0], [0, 1]]]


def test_uniform_takes_the_same_share_of_every_group() -> None:
    """By mean scores all that goes would be of the first group."""
    coupling = Coupling((4, 8), {"a": (((0, 4, 1),), ((-1, 1, 1),)), "b": (((4, 8, 1),), ((-1, 1, 1),))})
    scores = {"a": torch.arange(1.0, 5)[:, None], "b": torch.arange(10.0, 18)[:, None]}
    ones = Mask.ones({"a": (4, 1), "b": (8, 1)})

    def left(allocation: str) -> list[int]:
        found = keep_highest(scores, ones, 6, "coupled", allocation, coupling)  # type: ignore[arg-type]
        return [int(layer.sum()) for layer in found.layers.values()]

    assert left("global") == [1, 5]
    assert left("uniform") == [2, 4]


def test_features_of_a_flattened_channel_go_together() -> None:
    coupling = Coupling((2,), {"w": (((-1, 1, 2),), ((0, 2, 3),))})
    scores = {"w": torch.tensor([[9.0, 0, 0, 2, 2, 2]] * 2)}
    left = keep_highest(scores, Mask.ones({"w": (2, 6)}), 6, "coupled", coupling=coupling).layers["w"].int().tolist()
    assert left == [[1, 1, 1, 0, 0, 0]] * 2


@pytest.mark.parametrize("numbers", [[0], [-1, -1], [3, 4, 5, 0, 1, 1, 2, 2, -1, 0], [5, 4, 3], [-1, 0, 1, -1]])
def test_ranges_say_which_channel_an_index_is(numbers: list[int]) -> None:
    assert expanded(as_ranges(numbers)).tolist() == numbers


def test_the_pattern_needs_a_coupling_and_numbers() -> None:
    ones = Mask.ones(SHAPES)
    with pytest.raises(ValueError, match="needs the coupling of the model's channels"):
        keep_highest(SCORES, ones, 5, "coupled")
    with pytest.raises(ValueError, match="'erk' is for layers"):
        keep_highest(SCORES, ones, 5, "coupled", "erk", STREAM)
    broken: dict[str, Tensor] = {**SCORES, "b": torch.tensor([[0.0, torch.nan, 1]])}
    with pytest.raises(ValueError, match="is NaN"):
        keep_highest(broken, ones, 5, "coupled", coupling=STREAM)
