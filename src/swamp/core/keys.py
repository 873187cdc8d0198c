"""Content keys, under which all results are stored.

A key is a hash of how a value is derived, so it is known before the value has been computed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

# Part of every key. Raise it when a change of the code changes the numbers, so that no old result is taken for a new one.
NUMERICS_VERSION = 2


def canonical(value: Any) -> bytes:
    """Return the canonical JSON text of a value: sorted names, no spaces, shortest floats."""
    plain = msgspec.to_builtins(value)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def key_of(kind: str, **inputs: Any) -> str:
    """Return the key of the result that `kind` derives from `inputs` (numbers, texts, settings, other keys).

    >>> key_of("mean", particles=["a", "b"]) == key_of("mean", particles=["b", "a"])
    False
    """
    text = canonical({"kind": kind, "numerics": NUMERICS_VERSION, "inputs": inputs})
    return hashlib.sha256(text).hexdigest()[:40]


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a checksum of the names, types, shapes and bytes of tensors, independent of their device and order."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total.update(canonical([name, str(tensor.dtype), list(tensor.shape)]))
        # A 0-dimensional tensor cannot be viewed as bytes, so it is reshaped first.
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
