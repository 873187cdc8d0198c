from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from swamp.core.noise import Noise


def test_paths_give_different_draws_and_the_same_path_the_same() -> None:
    noises = [Noise(seed).fold(name, index) for seed in (0, 1) for name in ("a", "b") for index in range(5)]
    assert len({noise.integer() for noise in noises}) == len(noises)
    again = Noise(0).fold("a", 3)
    assert torch.equal(torch.rand(4, generator=again.generator()), torch.rand(4, generator=Noise(0).fold("a", 3).generator()))


def test_drawing_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    torch.rand(3, generator=Noise(0).generator())
    assert torch.equal(before, torch.get_rng_state())


def test_split_is_fold() -> None:
    assert list(Noise(7).fold("cycle", 1).split("particle", 2)) == [Noise(7).fold("cycle", 1, "particle", n) for n in (0, 1)]


@given(st.integers(0, 2**40), st.lists(st.text("abc0123456789", min_size=1), max_size=4))
def test_integers_fit_torch_generators(seed: int, path: list[str]) -> None:
    assert 0 <= Noise(seed, tuple(path)).integer() < 2**63
