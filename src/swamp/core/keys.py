"""Content keys: one name for one value.

Everything that is stored is stored under a key that says how it was derived, so a key is known before the value is.
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
    """The one JSON text of a value: sorted names, no spaces, shortest floats."""
    plain = msgspec.to_builtins(value)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def key_of(kind: str, **inputs: Any) -> str:
    """The key of what `kind` makes of `inputs` (numbers, texts, settings, other keys).

    >>> key_of("mean", particles=["a", "b"]) == key_of("mean", particles=["b", "a"])
    False
    """
    text = canonical({"kind": kind, "numerics": NUMERICS_VERSION, "inputs": inputs})
    return hashlib.sha256(text).hexdigest()[:40]


def digest(tensors: Mapping[str, Tensor]) -> str:
    """A checksum over names, types, shapes and bytes of tensors, whatever device or order they come in."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total.update(canonical([name, str(tensor.dtype), list(tensor.shape)]))
        # reshape before view: a 0-dimensional tensor cannot be seen as bytes
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
