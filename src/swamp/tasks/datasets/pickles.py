"""The pickles of CIFAR, read without running anything that they ask for.

A pickle may name any function to be called. Those of CIFAR name three, of numpy's array, and these are answered by stand-ins that
can do no more than note shape and bytes; every other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray


def load_arrays(data: bytes) -> dict[bytes, Any]:
    """A pickled dictionary (protocol 2, written by Python 2) of numbers, texts, lists and byte arrays."""
    try:
        found = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        return {key: value.array() if isinstance(value, _Array) else value for key, value in found.items()}
    except Exception as error:  # there is no end to what a malformed pickle can raise
        raise ValueError(f"not a pickle of plain arrays ({error})") from None


class _Array:
    """What numpy would make of (version, shape, dtype, Fortran order, bytes)."""

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
    """What numpy would make of dtype("u1")."""

    __slots__ = ("code",)

    def __init__(self, code: object = None, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like: bytes have none."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # a subclass for each use: a pickle may set attributes of what it is given, and those shall not last
        match module, name:
            case ("numpy.core.multiarray", "_reconstruct"):
                return type("_Array", (_Array,), {"__slots__": ()})
            case ("numpy", "dtype"):
                return type("_Kind", (_Kind,), {"__slots__": ()})
            case ("numpy", "ndarray"):
                return "ndarray"
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")
