from __future__ import annotations

import torch

from swamp.core.job import Numerics
from swamp.training.numerics import applied, autocast


def test_settings_are_applied_and_given_back() -> None:
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    with applied(Numerics(threads=1, deterministic=True)):
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
        torch.manual_seed(5)
    assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.get_rng_state(), state)


def test_bf16_is_for_the_forward_pass_alone() -> None:
    layer = torch.nn.Linear(2, 2)
    for precision, kind in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        with autocast(Numerics(precision=precision), torch.device("cpu")):  # type: ignore[arg-type]
            assert layer(torch.ones(1, 2)).dtype == kind
    assert layer.weight.dtype == torch.float32
