"""Sets torch's global state so that the same job gives the same numbers, and restores it afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch

from swamp.core.job import Numerics

T = TypeVar("T")
backends: Any = torch.backends
# The kinds of float32 products that torch may compute in TF32 or bf16 instead: on NVIDIA GPUs, and by oneDNN on CPUs.
PRODUCTS = [getattr(backend, kind) for backend in (backends.cudnn, backends.mkldnn) for kind in ("conv", "rnn")]
PRODUCTS += [backends.cuda.matmul, backends.mkldnn.matmul]


@contextmanager
def applied(numerics: Numerics) -> Iterator[None]:
    """Set threads, determinism and the precision of float32 products, and restore them and the random state afterwards."""
    threads, level = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    if numerics.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is not deterministic without it.
    # Only the current device is visited, because visiting every GPU of a machine takes time and torch warns of it.
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_initialized() else []), _exact_products():
        try:
            torch.set_num_threads(numerics.threads)
            _set_determinism(2 if numerics.deterministic else 0)
            yield
        finally:
            torch.set_num_threads(threads)
            _set_determinism(level)


@contextmanager
def _exact_products() -> Iterator[None]:
    """Compute products of float32 numbers in float32, whatever this process has set, and restore its settings afterwards.

    torch has two sets of names for them. It refuses to read the older ones where the newer ones say something else.
    """
    before = [product.fp32_precision for product in PRODUCTS]
    matmul, cudnn = _if_readable(torch.get_float32_matmul_precision), _if_readable(lambda: torch.backends.cudnn.allow_tf32)
    try:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        for product in PRODUCTS:
            product.fp32_precision = "ieee"
        yield
    finally:
        if matmul is not None:
            torch.set_float32_matmul_precision(matmul)
        if cudnn is not None:
            torch.backends.cudnn.allow_tf32 = cudnn
        for product, precision in zip(PRODUCTS, before, strict=True):
            product.fp32_precision = precision


def _if_readable(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except RuntimeError:
        return None


def _set_determinism(level: int) -> None:
    """Set what torch does about an algorithm that is not deterministic: 0 nothing, 1 warn, 2 refuse.

    What is set already is left alone, because torch imports its compiler to set it, which nearly doubles the time in which a worker starts.
    """
    if level != torch.get_deterministic_debug_mode():
        torch.use_deterministic_algorithms(level > 0, warn_only=level == 1)


def autocast(numerics: Numerics, device: torch.device) -> AbstractContextManager[None]:
    """Return the autocast context of a forward pass: bf16 inside it, with float32 weights, if the precision is bf16."""
    context: AbstractContextManager[None] = torch.autocast(device.type, torch.bfloat16, enabled=numerics.precision == "bf16")
    return context


def seed_model_draws(device: torch.device, integer: int) -> None:
    """Seed the generator that dropout and the like draw from."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(integer)  # torch.manual_seed would visit every backend.
    else:
        torch.manual_seed(integer)
