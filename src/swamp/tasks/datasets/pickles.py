"""Reads the pickles of CIFAR without running any code that they name.

A pickle may name any function to be called. Those of CIFAR name three functions of numpy's arrays, which are replaced by classes that
only record shape and bytes. Every other name is an error.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray


def load_arrays(data: bytes) -> dict[bytes, Any]:
    """Read a pickled dictionary (protocol 2, written by Python 2) of numbers, texts, lists and byte arrays."""
    try:
        found = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        return {key: value.array() if isinstance(value, _Array) else value for key, value in found.items()}
    except Exception as error:  # A malformed pickle can raise anything.
        raise ValueError(f"not a pickle of plain arrays ({error})") from None


class _Array:
    """Stands for the array that numpy would make of (version, shape, dtype, Fortran order, bytes)."""

    __slots__ = ("state",)

    def __init__(self, *_: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def array(self) -> NDArray[np.uint8]:
        _, shape, kind, fortran, raw = self.state
        if not isinstance(kind, _Kind) or kind.code != b"u1" or not isinstance(raw, bytes) or math.prod(shape) != len(raw):
            raise ValueError("an array of something else than bytes")
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


class _Kind:
    """Stands for dtype("u1")."""

    __slots__ = ("code",)

    def __init__(self, code: object = None, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and the like, which bytes do not have."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # Each use gets its own subclass, because a pickle may set attributes of the class, and those must not last.
        match module, name:
            case ("numpy.core.multiarray", "_reconstruct"):
                return type("_Array", (_Array,), {"__slots__": ()})
            case ("numpy", "dtype"):
                return type("_Kind", (_Kind,), {"__slots__": ()})
            case ("numpy", "ndarray"):
                return "ndarray"
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")
