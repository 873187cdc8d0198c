from __future__ import annotations

import subprocess
import sys

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


def test_a_users_own_determinism_is_given_back() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for deterministic in (False, True):
            with applied(Numerics(deterministic=deterministic)):
                assert torch.get_deterministic_debug_mode() == 2 * deterministic
            assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_training_does_not_import_the_compiler() -> None:
    """It would nearly double the time in which a worker starts."""
    code = (
        "import sys; from swamp.core.job import Numerics; from swamp.training.numerics import applied\n"
        "with applied(Numerics()): pass\n"
        "print('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_bf16_is_for_the_forward_pass_alone() -> None:
    layer = torch.nn.Linear(2, 2)
    for precision, kind in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        with autocast(Numerics(precision=precision), torch.device("cpu")):  # type: ignore[arg-type]
            assert layer(torch.ones(1, 2)).dtype == kind
    assert layer.weight.dtype == torch.float32
