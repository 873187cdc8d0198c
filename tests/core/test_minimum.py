"""The minimum of a function of one number is the one that scipy finds, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch.nn import functional as F

from swamp.core.minimum import minimum_between

ENDS = st.tuples(st.floats(-10, 10), st.floats(0.01, 20)).map(lambda ends: (ends[0], ends[0] + ends[1]))
FUNCTIONS: dict[str, Callable[[float, float], float]] = {
    "parabola": lambda x, a: (x - a) ** 2,
    "kink": lambda x, a: abs(x - a) + 0.1 * x,
    "waves": lambda x, a: math.sin(3 * x + a) + 0.05 * x * x,
    "flat": lambda x, a: max(0.0, abs(x) - abs(a)),
    "falls to an end": lambda x, a: math.exp(-x) + 0.0 * a,
    "not a number": lambda x, a: math.nan if x > a else -x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(ends=ENDS, a=st.floats(-5, 5), tolerance=st.sampled_from([1e-6, 1e-3, 0.5]))
def test_it_calls_the_function_where_scipy_does(name: str, ends: tuple[float, float], a: float, tolerance: float) -> None:
    ours: list[float] = []
    theirs: list[float] = []

    def called(places: list[float]) -> Callable[[float], float]:
        return lambda x: (places.append(float(x)), FUNCTIONS[name](float(x), a))[1]

    found = minimum_between(*ends, called(ours), tolerance)
    expected = minimize_scalar(called(theirs), bounds=ends, method="bounded", options={"xatol": tolerance})
    assert ours == theirs
    assert found == expected.x


def test_the_temperature_of_a_network_is_found() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(200, 5, generator=generator).double(), torch.randint(5, (200,), generator=generator)
    logits[range(200), labels] += 1.0

    def nll(log_t: float) -> float:
        return float(F.cross_entropy(logits * math.exp(-log_t), labels))

    found = minimum_between(-5.0, 5.0, nll, 1e-6)
    assert nll(found) < min(nll(found - 1e-4), nll(found + 1e-4))
