"""Where Triton kernels are tested: on a GPU in bf16 or, with TRITON_INTERPRET=1, by Triton's interpreter on the CPU in float32."""

from __future__ import annotations

import os

import pytest
import torch

INTERPRETED = bool(os.environ.get("TRITON_INTERPRET"))
DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPE = torch.float32 if INTERPRETED else torch.bfloat16  # Triton 3.6 interprets no product in bf16.
on_triton = pytest.mark.skipif(False, reason="") if INTERPRETED else pytest.mark.gpu
