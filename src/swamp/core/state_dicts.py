"""Writes what `state_dict()` returns as named tensors, without pickle: plain values become JSON text in a tensor of bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

TEXT = "text"


def pack(state: Any) -> dict[str, Tensor]:
    """Return the tensors of a state dict, and one with the rest of it."""
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_packed(state, tensors, "state"))
    return {**tensors, TEXT: torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)}


def unpack(tensors: Mapping[str, Tensor]) -> Any:
    """Return the state dict that was packed.

    >>> state = {"step": 3, "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0]}], 0: {"momentum": torch.ones(2)}}
    >>> unpack(pack(state)) | {0: None} == state | {0: None}, unpack(pack(state))[0]["momentum"]
    (True, tensor([1., 1.]))
    """
    try:
        return _unpacked(json.loads(tensors[TEXT].numpy().tobytes().decode()), tensors)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:  # The file may come from anybody.
        raise ValueError(f"the checkpoint holds no state that can be restored ({type(error).__name__})") from error


def _packed(value: Any, tensors: dict[str, Tensor], path: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Tensor):
        tensors[str(len(tensors))] = value.detach()
        return {"tensor": str(len(tensors) - 1)}
    if isinstance(value, Mapping) and all(isinstance(key, int | str) for key in value):
        return {"dict": [[key, _packed(item, tensors, f"{path}[{key!r}]")] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {
            "tuple" if isinstance(value, tuple) else "list": [
                _packed(item, tensors, f"{path}[{index}]") for index, item in enumerate(value)
            ]
        }
    raise ValueError(f"{path} is a {type(value).__name__}, which cannot be kept: tensors, numbers, texts, lists and dicts can")


def _unpacked(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _unpacked(item, tensors) for key, item in content}
    items = [_unpacked(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items
