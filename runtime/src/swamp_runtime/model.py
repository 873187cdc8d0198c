"""A network that was loaded from a file."""

from __future__ import annotations

import ctypes
import json
import os
import stat
import weakref
from typing import Any, NamedTuple

import numpy as np

from swamp_runtime.library import PortStruct, Sizes, library

SIDES = {  # of an example of each kind, in the order of its dimensions and of the library's kinds
    "image": ("channels", "height", "width"),
    "vector": ("channels",),
    "sequence": ("width", "channels"),
    "signal": ("channels", "width"),
    "tokens": ("width",),
}
MAX_BYTES = 16 << 30  # of a file
MAX_SHAPES = 1024  # sizes of outputs that are remembered


class Malformed(ValueError):
    """The file holds no network that can be run; the message says why."""


class Port(NamedTuple):
    """An input or output of a network. A size is None where the caller decides."""

    name: str
    # image (batch, channels, height, width), vector (batch, channels), sequence (batch, length, channels), signal (batch, channels, length)
    # or tokens (batch, length)
    kind: str
    channels: int | None
    height: int | None
    width: int | None  # of a sequence and of tokens the length


class Model:
    """A network that is ready to be run. Several threads may call it at a time; calls do not hold Python's lock."""

    def __init__(self, content: bytes | bytearray | memoryview, threads: int | None = None) -> None:
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise TypeError(f"a network is loaded from the bytes of a file, and this is of type {type(content).__name__}")
        content = bytes(content)
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024):
            raise ValueError(f"threads is {threads!r}, and must be a whole number from 1 to 1024, or None for all cores")
        self._library = library()
        self._model = self._library.swamp_load_bytes(content, len(content), threads or 0)
        if not self._model:
            raise Malformed(self._library.swamp_error().decode(errors="replace"))
        weakref.finalize(self, self._library.swamp_free, self._model)
        read = self._library
        self.inputs = [_port(read.swamp_input(self._model, i)) for i in range(read.swamp_num_inputs(self._model))]
        self.outputs = [_port(read.swamp_output(self._model, i)) for i in range(read.swamp_num_outputs(self._model))]
        self.about: dict[str, Any] = json.loads(read.swamp_about(self._model))
        self._shapes: dict[tuple[int, int, int], list[tuple[int, ...]]] = {}  # of the outputs, by the free sizes

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Compute a batch. Inputs are given in their order or by name; several outputs come as a tuple."""
        given, batch, sizes = self._checked(arrays, named)
        outputs = [np.empty((batch, *shape), np.float32) for shape in self._output_shapes(sizes)]
        self._do(self._library.swamp_run(self._model, batch, ctypes.byref(sizes), _pointers(given), _pointers(outputs)))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def layers(self, *, height: int = 0, width: int = 0, length: int = 0) -> list[dict[str, Any]]:
        """Return how each layer is computed (sparse, int8, dense or float) and its density, for the sizes that a caller decides."""
        text = self._library.swamp_layers(self._model, ctypes.byref(Sizes(height, width, length)))
        if text is None:
            raise ValueError(self._library.swamp_error().decode(errors="replace"))
        return list(json.loads(text))

    def _output_shapes(self, sizes: Sizes) -> list[tuple[int, ...]]:
        key = (sizes.height, sizes.width, sizes.length)
        shapes = self._shapes.get(key)
        if shapes is None:
            found = (ctypes.c_int64 * (3 * len(self.outputs)))()
            self._do(self._library.swamp_output_sizes(self._model, ctypes.byref(sizes), found))
            each = [dict(zip(("channels", "height", "width"), found[3 * i : 3 * i + 3], strict=True)) for i in range(len(self.outputs))]
            shapes = [tuple(size[side] for side in SIDES[port.kind]) for port, size in zip(self.outputs, each, strict=True)]
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            self._shapes[key] = shapes
        return shapes

    def _do(self, failed: int) -> None:
        if failed:
            raise ValueError(self._library.swamp_error().decode(errors="replace"))

    def _checked(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[np.ndarray], int, Sizes]:
        names = [port.name for port in self.inputs]
        if len(arrays) > len(names):
            raise ValueError(f"the network takes {len(names)} inputs ({', '.join(names)}), and {len(arrays)} are given")
        by_name = dict(zip(names, arrays, strict=False))
        for name, array in named.items():
            if name not in names or name in by_name:
                raise ValueError(f"the network takes the inputs {', '.join(names)}, each once; {name!r} is none of them or given twice")
            by_name[name] = array
        if missing := [name for name in names if name not in by_name]:
            raise ValueError(f"the input {missing[0]!r} is missing; the network takes {', '.join(names)}")
        given, batch, sizes = [], None, Sizes(0, 0, 0)
        for port in self.inputs:
            array = _converted(np.asarray(by_name[port.name]), port)
            if batch is not None and len(array) != batch:
                raise ValueError(f"{port.name} has {len(array)} examples, and {self.inputs[0].name} has {batch}")
            batch = len(array)
            _settle(sizes, array, port)
            given.append(array)
        assert batch is not None
        return given, batch, sizes


def load(path: str | os.PathLike[str], threads: int | None = None) -> Model:
    """Load a network from a file. `threads` is the number of threads that a call may use, by default one for each core."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            raise Malformed(f"{os.fspath(path)!r} is no sparse network: it is no regular file, or larger than {MAX_BYTES} bytes")
        content = file.read(status.st_size)
    try:
        return Model(content, threads)
    except Malformed as error:
        raise Malformed(f"{os.fspath(path)!r} cannot be run: {error}") from None


def load_bytes(content: bytes | bytearray | memoryview, threads: int | None = None) -> Model:
    """Load a network from the bytes of a file."""
    return Model(content, threads)


def _port(port: PortStruct) -> Port:
    channels, height, width = (None if size < 0 else size for size in (port.channels, port.height, port.width))
    return Port(port.name.decode(), list(SIDES)[port.kind], channels, height, width)


def _converted(array: np.ndarray, port: Port) -> np.ndarray:
    """Return the array in the type and memory layout that the library reads, or raise ValueError."""
    wanted = [getattr(port, side) for side in SIDES[port.kind]]
    fits = array.ndim == 1 + len(wanted) and all(size is None or size == have for size, have in zip(wanted, array.shape[1:], strict=True))
    if not fits or 0 in array.shape[1:]:
        sizes = ", ".join(["batch", *("any" if size is None else str(size) for size in wanted)])
        raise ValueError(f"{port.name} has shape {list(array.shape)}, and the network takes ({sizes})")
    if port.kind == "tokens":
        if array.dtype.kind not in "iub":
            raise ValueError(f"{port.name} has type {array.dtype}, and the network takes integers")
        return np.ascontiguousarray(array, np.int64)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{port.name} has type {array.dtype}, and the network takes numbers")
    return np.ascontiguousarray(array, np.float32)


def _settle(sizes: Sizes, array: np.ndarray, port: Port) -> None:
    """Set the free sizes that an input decides, or raise ValueError where two inputs decide differently."""
    for side, size in zip(SIDES[port.kind], array.shape[1:], strict=True):
        if getattr(port, side) is not None:
            continue
        name = side if port.kind == "image" else "length"
        if getattr(sizes, name) not in (0, size):
            raise ValueError(f"{port.name} has {name} {size}, and an input before it has {getattr(sizes, name)}")
        setattr(sizes, name, size)


def _pointers(arrays: list[np.ndarray]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
