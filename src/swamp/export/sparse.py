"""Sparse files: the surviving weights and where they stand. `reader` has the format, and reads it with numpy alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export import reader
from swamp.export.reader import ESCAPE, FORMAT, Stream

Values = Literal["float32", "float16", "bfloat16"]
KINDS = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class LoadedSparse(NamedTuple):
    """A network that came from a sparse file."""

    model: nn.Module  # the one that was given, in evaluation mode, its weights really zero off the mask
    mask: Mask
    about: dict[str, Any]


def encode(state: State, mask: Mask, values: Values = "float32", about: Mapping[str, Any] | None = None) -> bytes:
    """The bytes of a sparse file. Equal networks make equal bytes. `values` is the type of the surviving weights; what is not pruned
    (biases, norms, their statistics) stays as it is."""
    tensors = {**state.parameters, **state.buffers}
    pruned: list[list[Any]] = []
    positions: list[np.ndarray] = []
    survivors: list[Tensor] = []
    for name, layer in mask.layers.items():
        code, places = shorter(layer.numpy().reshape(-1))
        survivors.append(rounded(tensors[name][layer], values, name))
        pruned.append([name, list(layer.shape), code, len(survivors[-1]), len(places)])
        positions.append(places)
    dense: list[list[Any]] = [
        [name, _kind(tensor, name), list(tensor.shape)] for name, tensor in tensors.items() if name not in mask.layers
    ]
    streams = {"values": torch.cat(survivors), "positions": torch.from_numpy(np.concatenate(positions))}
    for kind in sorted({kind for _, kind, _ in dense}):
        streams[f"dense.{kind}"] = torch.cat([tensors[name].reshape(-1) for name, of, _ in dense if of == kind])
    meta = {"format": FORMAT, "about": dict(about or {}), "pruned": pruned, "dense": dense}
    seen = {name: Stream(_kind(t, name), list(t.shape), t.view(torch.uint8).numpy().data) for name, t in streams.items()}
    text = reader.text_of({"checksum": reader.checksum(seen, meta), "meta": meta}).decode()
    return safetensors.torch.save(streams, {"swamp": text})


def rounded(survivors: Tensor, values: Values, name: str) -> Tensor:
    """The surviving weights in the type that they are stored in."""
    if survivors.dtype != torch.float32:
        raise ValueError(f"{name} has type {str(survivors.dtype).removeprefix('torch.')}; a sparse file holds weights that were float32")
    stored = survivors.to(getattr(torch, values))
    if not stored.isfinite().equal(survivors.isfinite()):
        raise ValueError(f"a weight of {name} is too large for {values}")
    return stored


def shorter(alive: np.ndarray) -> tuple[str, np.ndarray]:
    """The survivors' places by the code that takes less room."""
    bits, gaps = np.packbits(alive), as_gaps(alive)
    return ("gaps", gaps) if len(gaps) < len(bits) else ("bits", bits)


def as_gaps(alive: np.ndarray) -> np.ndarray:
    """How many weights are pruned before each survivor, a byte each; 255 says that 255 are, and that no survivor follows.

    >>> as_gaps(np.array([False] * 256 + [True, True, False])).tolist()
    [255, 1, 0]
    """
    places = np.flatnonzero(alive)
    gaps = np.diff(places, prepend=-1) - 1
    tail = len(alive) - (int(places[-1]) + 1 if len(places) else 0)
    escapes = gaps // ESCAPE
    stream = np.full(len(places) + int(escapes.sum()) + tail // ESCAPE, ESCAPE, np.uint8)
    stream[np.cumsum(escapes + 1) - 1] = gaps % ESCAPE
    return stream


def bound(state: State, mask: Mask, values: Values = "float32") -> float:
    """Bytes that no code for positions can go below, if weights of a layer survive independently: the values themselves, the entropy of
    each layer's mask, and everything that is not pruned."""
    bits = sum(layer.numel() * _entropy(density) for layer, density in zip(mask.layers.values(), mask.densities.values(), strict=True))
    width = 4 if values == "float32" else 2
    dense = sum(t.numel() * t.element_size() for name, t in {**state.parameters, **state.buffers}.items() if name not in mask.layers)
    return width * mask.num_survivors + bits / 8 + dense


def decoded_bytes(state: State, mask: Mask) -> int:
    """The room that the reader needs for a network: its tensors, and a byte for each weight that can be pruned."""
    return sum(t.numel() * t.element_size() for t in (*state.parameters.values(), *state.buffers.values())) + mask.num_weights


def load_sparse(path: str | Path, model: nn.Module) -> LoadedSparse:
    """Put the network of a sparse file into a model of the same architecture. To train it further, give the mask along.

    >>> import tempfile
    >>> model = nn.Linear(2, 2)
    >>> mask = Mask({"weight": torch.tensor([[True, False], [False, True]])})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "model.swamp"
    ...     _ = path.write_bytes(encode(State.of(model), mask))
    ...     loaded = load_sparse(path, nn.Linear(2, 2))
    >>> loaded.mask.num_survivors, bool((loaded.model.weight == model.weight * mask.layers["weight"]).all())
    (2, True)
    """
    state, mask, about = read_sparse(path, State.of(model))
    state.into(model)
    return LoadedSparse(model.eval(), mask, about)


def read_sparse(path: str | Path, like: State) -> tuple[State, Mask, dict[str, Any]]:
    """The network of a sparse file, whose tensors must be those of `like` by name, shape and kind of number."""
    room = decoded_bytes(like, Mask({})) + sum(t.numel() for t in like.parameters.values())
    try:
        found = reader.read(path, max_decoded=room)
    except reader.TooLarge:
        raise ValueError(f"{path} holds a larger network than the model") from None
    wanted = {**like.parameters, **like.buffers}
    if differing := sorted(found.tensors.keys() ^ wanted.keys()):
        raise ValueError(f"{path} and the model have different tensors: {', '.join(differing[:3])}")
    for name, tensor in wanted.items():
        if found.tensors[name].shape != tuple(tensor.shape):
            raise ValueError(f"{name} has shape {list(found.tensors[name].shape)} in {path}, {list(tensor.shape)} in the model")
    if foreign := [name for name in found.masks if name not in like.parameters]:
        raise ValueError(f"{path} prunes {foreign[0]}, which is no parameter of the model")
    # cloned into memory of torch's own alignment, as everything that is loaded
    tensors = {name: torch.from_numpy(found.tensors[name]).to(tensor.dtype, copy=True) for name, tensor in wanted.items()}
    masks = {name: torch.from_numpy(found.masks[name].copy()) for name in like.parameters if name in found.masks}
    parameters = {name: tensors[name] for name in like.parameters}
    return State(parameters, {name: tensors[name] for name in like.buffers}), Mask(masks), found.about


def _kind(tensor: Tensor, name: str) -> str:
    if tensor.dtype not in KINDS:
        raise ValueError(f"{name} has type {str(tensor.dtype).removeprefix('torch.')}, which a sparse file does not hold")
    return KINDS[tensor.dtype]


def _entropy(density: float) -> float:
    return -sum(p * math.log2(p) for p in (density, 1 - density) if p > 0)
