from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swamp.core.noise import Noise
from swamp.scores import erk_counts, random_mask, uniform_counts
from swamp.tasks.models import find_model
from swamp.tasks.prunable import prunable_weights

SHAPES = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=6)


def published_erk(shapes: dict[str, tuple[int, ...]], density: float) -> dict[str, float]:
    """The densities as the original's code finds them (rigl/sparse_utils.py, ERK with power scale 1), written anew in floats."""
    dense: set[str] = set()
    while True:
        divisor = rhs = 0.0
        raw = {}
        for name, shape in shapes.items():
            size = math.prod(shape)
            if name in dense:
                rhs -= size * (1 - density)
            else:
                rhs += size * density
                raw[name] = sum(shape) / size
                divisor += raw[name] * size
        epsilon = rhs / divisor
        if max(raw.values()) * epsilon <= 1:
            return {name: 1.0 if name in dense else epsilon * raw[name] for name in shapes}
        dense |= {name for name, value in raw.items() if value == max(raw.values())}


@pytest.mark.parametrize("density", [0.5, 0.2621, 0.1074, 0.055])
def test_erk_of_the_papers_network(density: float) -> None:
    shapes = prunable_weights(find_model("wrn28-2")(3, 10), ["conv"])
    total = sum(math.prod(shape) for shape in shapes.values())
    num_keep = round(total * density)
    counts = erk_counts(shapes, num_keep)
    assert sum(counts.values()) == num_keep
    expected = published_erk(shapes, num_keep / total)
    for name, shape in shapes.items():
        assert abs(counts[name] - expected[name] * math.prod(shape)) <= 1.001, name
    assert counts[next(iter(shapes))] == math.prod(shapes[next(iter(shapes))]), "the stem is dense"


@given(SHAPES, st.floats(0, 1))
def test_totals_are_exact_and_no_layer_overflows(shapes: list[tuple[int, ...]], share: float) -> None:
    named = {str(index): shape for index, shape in enumerate(shapes)}
    num_keep = math.floor(share * sum(map(math.prod, shapes)))
    for counts in (erk_counts(named, num_keep), uniform_counts(named, num_keep)):
        assert sum(counts.values()) == num_keep
        assert all(0 <= counts[name] <= math.prod(shape) for name, shape in named.items())


@given(SHAPES, st.floats(0, 1))
def test_uniform_means_the_same_density_to_a_weight(shapes: list[tuple[int, ...]], share: float) -> None:
    named = {str(index): shape for index, shape in enumerate(shapes)}
    total = sum(map(math.prod, shapes))
    num_keep = math.floor(share * total)
    for name, count in uniform_counts(named, num_keep).items():
        assert abs(count - num_keep / total * math.prod(named[name])) < 1 + 1e-9


def test_random_masks_follow_from_the_noise() -> None:
    shapes: dict[str, tuple[int, ...]] = {"a": (20, 30), "b": (7,)}
    counts = {"a": 100, "b": 3}
    mask = random_mask(shapes, counts, Noise(0))
    assert {name: int(layer.sum()) for name, layer in mask.layers.items()} == counts
    assert mask.digest == random_mask(shapes, counts, Noise(0)).digest
    assert mask.digest != random_mask(shapes, counts, Noise(1)).digest
    # spread over the whole layer: each half of the rows gets its share, within 5 standard deviations
    assert abs(int(mask.layers["a"][:10].sum()) - 50) < 5 * math.sqrt(100 * 0.25)
