"""Setting the machine so that the same job gives the same numbers, and giving it back as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from swamp.core.job import Numerics


@contextmanager
def applied(numerics: Numerics) -> Iterator[None]:
    """Threads, determinism and float32 products as `numerics` says; the global random state is put back too."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    if numerics.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses determinism without it
    # the current device alone: visiting every GPU of a machine takes time, and torch warns of it
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
        try:
            torch.set_num_threads(numerics.threads)
            torch.use_deterministic_algorithms(numerics.deterministic)
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(deterministic)
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32


def autocast(numerics: Numerics, device: torch.device) -> AbstractContextManager[None]:
    """bf16 means bf16 inside the forward pass and float32 weights."""
    context: AbstractContextManager[None] = torch.autocast(device.type, torch.bfloat16, enabled=numerics.precision == "bf16")
    return context


def seed_model_draws(device: torch.device, integer: int) -> None:
    """Seed the generator that dropout and the like draw from."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(integer)  # torch.manual_seed would visit every backend
    else:
        torch.manual_seed(integer)
