from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from swamp.core.job import Numerics
from swamp.training.numerics import PRODUCTS, applied, autocast, backends


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


def set_newer_name() -> None:
    backends.mkldnn.matmul.fp32_precision = "bf16"
    backends.cuda.matmul.fp32_precision = "tf32"


@pytest.mark.parametrize(
    "choose", [lambda: torch.set_float32_matmul_precision("medium"), set_newer_name], ids=["older names", "newer names"]
)
def test_products_are_float32_whatever_the_caller_has_chosen(choose: Callable[[], None]) -> None:
    """On CPUs, too: workers, which are new processes, would otherwise compute other bits than this one."""
    before = [product.fp32_precision for product in PRODUCTS]
    choose()
    chosen = [product.fp32_precision for product in PRODUCTS]
    try:
        assert {"tf32", "bf16"} <= set(chosen)
        with applied(Numerics()):
            assert {product.fp32_precision for product in PRODUCTS} == {"ieee"}
            assert torch.get_float32_matmul_precision() == "highest"  # Libraries read the older names, which must not contradict.
            assert not torch.backends.cudnn.allow_tf32
        assert [product.fp32_precision for product in PRODUCTS] == chosen
        if choose is not set_newer_name:
            assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
        for product, precision in zip(PRODUCTS, before, strict=True):
            product.fp32_precision = precision


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
