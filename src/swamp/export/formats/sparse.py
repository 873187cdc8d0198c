"""sparse: the surviving weights and their positions. `export/reader.py` describes the format and reads it with numpy alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.torch
import swamp_runtime
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export import reader
from swamp.export.formats import TOLERANCE, Exported, TrainedNetwork, ValueType, called_with, is_sparse, program_of, rounded
from swamp.export.program import NetworkProgram, NoProgram
from swamp.export.program.builder import DERIVED
from swamp.export.quantise import halved, quantised_rows, with_one_scale
from swamp.export.reader import ESCAPE, Stream

name = "sparse"
suffixes = (".swamp",)
narrows, float32_only, takes_int8 = False, False, True  # pruned channels take hardly any bytes, and the network keeps its shapes
runtime = "torch"
TYPES = {  # safetensors' names
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
    """A network that was read from a sparse file."""

    model: nn.Module  # the given one, in evaluation mode; pruned weights are zero
    mask: Mask
    about: dict[str, Any]


def encode_network(network: TrainedNetwork) -> Exported:
    program, notes = network.program, []
    if program is None and not network.has_no_program:
        try:
            program = program_of(network.model, network.task)
        except NoProgram as error:
            notes = [f"the file holds no program, and swamp.runtime cannot run it by itself: {error}"]
    content = encode(network.state, network.mask, network.values, network.about, program)
    if program is not None:
        compared = _compared(network, program)
        notes += [compared] if network.values == "float32" else []
    least = bound(network.state, network.mask, network.values)
    size = f"the entropy of its masks allows no file below {least:,.0f} bytes; this one has {len(content) / least:.3f} times that"
    return Exported(content, [*notes, size])


def _compared(network: TrainedNetwork, program: NetworkProgram) -> str:
    """Say how far the runtime's outputs are from torch's for some examples, with unrounded weights and inputs. A program that computes
    something else is an error."""
    nodes = [{name: value for name, value in node.items() if name != "input"} for node in program.program["nodes"]]
    exact = program._replace(program={**program.program, "nodes": nodes})
    try:
        runtime = swamp_runtime.load_bytes(encode(network.state, network.mask, program=exact), 1)
    except swamp_runtime.LibraryUnavailable as error:
        return f"the program was not compared with torch: {error}"
    inputs, named = called_with(network.model, network.task)
    with torch.no_grad():
        answer = network.model(*inputs, **named)
    tensors, expected = ([leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)] for tree in ((inputs, named), answer))
    pairs = list(zip(outputs_of(runtime, tensors), expected, strict=False))
    differences = [torch.where(ours == theirs, 0, ours - theirs) for ours, theirs in pairs]  # Equal infinities would differ by NaN.
    difference = float(torch.stack([one.abs().max() for one in differences]).max())  # NaN if one of them is
    largest = max(float(theirs.nan_to_num(0.0, 0.0, 0.0).abs().max()) for _, theirs in pairs)
    if not difference <= TOLERANCE * max(largest, 1.0):
        raise RuntimeError(
            f"the program's outputs differ from torch's by {difference:.3g}: please report this network, and use another format"
        )
    return f"for {len(tensors[0])} examples, the outputs of swamp.runtime and of torch differ by {difference:.1e} at most"


def outputs_of(runtime: swamp_runtime.Model, inputs: Sequence[Tensor], named: Mapping[str, Tensor] = MappingProxyType({})) -> list[Tensor]:
    """Return what a network in the runtime computes, as tensors."""
    arrays = [tensor.detach().contiguous().numpy() for tensor in inputs]
    found = runtime(*arrays, **{name: tensor.numpy() for name, tensor in named.items()})
    return [torch.from_numpy(array) for array in (found if isinstance(found, tuple) else (found,))]


def recognises(path: Path) -> bool:
    with safetensors.safe_open(path, "pt") as file:
        try:
            return "pruned" in json.loads((file.metadata() or {}).get("swamp", "{}")).get("meta", {})
        except (ValueError, AttributeError, TypeError):
            return False


def read_about(path: Path) -> dict[str, Any]:
    with safetensors.safe_open(path, "pt") as file:
        return dict(json.loads(file.metadata()["swamp"])["meta"]["about"])


def has_program(path: Path) -> bool:
    """Say whether the runtime can run a sparse file by itself."""
    with safetensors.safe_open(path, "pt") as file:
        return json.loads(file.metadata()["swamp"])["meta"].get("program") is not None


def load(path: Path, model: nn.Module, threads: int) -> nn.Module:
    return load_sparse(path, model).model


def encode(
    state: State,
    mask: Mask,
    values: ValueType = "float32",
    about: Mapping[str, Any] | None = None,
    program: NetworkProgram | None = None,
) -> bytes:
    """Return the bytes of a sparse file; equal networks give equal bytes. `values` is the type of the surviving weights. Tensors that are
    not pruned (biases, norms, their statistics) keep their types, but beside 8-bit values they are float16 where that is precise enough."""
    own = program.tensors if program else {}
    tensors = {**state.parameters, **state.buffers, **own}
    # What a program computes from pruned weights, such as a transposed matrix, is as sparse as they are.
    masks = {**mask.layers, **{name: tensor != 0 for name, tensor in own.items() if is_sparse(tensor)}}
    one_scale = with_one_scale(program.program if program else None)
    pruned: list[list[Any]] = []
    # Each begins with nothing, because a network may have no pruned tensor.
    positions = [np.empty(0, np.uint8)]
    survivors = [torch.empty(0, dtype=getattr(torch, values))]
    scales = [torch.empty(0)]
    for name, layer in masks.items():
        code, encoded = encode_positions(layer.numpy().reshape(-1))
        if values == "int8":
            whole, scale = quantised_rows(tensors[name] * layer, name, name in one_scale)
            scales.append(scale)
            survivors.append(whole[layer])
        else:
            survivors.append(rounded(tensors[name][layer], values, name))
        pruned.append([name, list(layer.shape), code, len(survivors[-1]), len(encoded)])
        positions.append(encoded)
    others = {name: _not_pruned(tensor, values) for name, tensor in tensors.items() if name not in masks}
    dense: list[list[Any]] = [[name, _type_name(tensor, name), list(tensor.shape)] for name, tensor in others.items()]
    streams = {"values": torch.cat(survivors), "positions": torch.from_numpy(np.concatenate(positions))}
    if values == "int8":
        streams["scales"] = torch.cat(scales)
    for kind in sorted({kind for _, kind, _ in dense}):
        streams[f"dense.{kind}"] = torch.cat([others[name].reshape(-1) for name, of, _ in dense if of == kind])
    meta: dict[str, Any] = {"format": 1, "about": dict(about or {}), "pruned": pruned, "dense": dense}
    if program or values == "int8":
        meta |= {"format": 2, "program": program.program if program else None}
    seen = {name: Stream(_type_name(t, name), list(t.shape), t.view(torch.uint8).numpy().data) for name, t in streams.items()}
    text = reader.text_of({"checksum": reader.checksum(seen, meta), "meta": meta}).decode()
    return safetensors.torch.save(streams, {"swamp": text})


def _not_pruned(tensor: Tensor, values: ValueType) -> Tensor:
    return halved(tensor) if values == "int8" else tensor


def encode_positions(alive: np.ndarray) -> tuple[str, np.ndarray]:
    """Return the shorter code of the survivors' positions, with its name."""
    bits, gaps = np.packbits(alive), as_gaps(alive)
    return ("gaps", gaps) if len(gaps) < len(bits) else ("bits", bits)


def as_gaps(alive: np.ndarray) -> np.ndarray:
    """Return the number of pruned weights before each survivor, one byte each. The byte 255 means 255 pruned weights without a survivor.

    >>> as_gaps(np.array([False] * 256 + [True, True, False])).tolist()
    [255, 1, 0]
    """
    positions = np.flatnonzero(alive)
    gaps = np.diff(positions, prepend=-1) - 1
    tail = len(alive) - (int(positions[-1]) + 1 if len(positions) else 0)
    escapes = gaps // ESCAPE
    stream = np.full(len(positions) + int(escapes.sum()) + tail // ESCAPE, ESCAPE, np.uint8)
    stream[np.cumsum(escapes + 1) - 1] = gaps % ESCAPE
    return stream


def bound(state: State, mask: Mask, values: ValueType = "float32") -> float:
    """Return the least number of bytes for any code of positions, if weights of a layer survive independently: the values, the entropy
    of each layer's mask, and all tensors that are not pruned."""
    bits = sum(layer.numel() * _entropy(density) for layer, density in zip(mask.layers.values(), mask.densities.values(), strict=True))
    width = {"float32": 4, "int8": 1}.get(values, 2)
    rows = sum(layer.shape[0] for layer in mask.layers.values()) if values == "int8" else 0
    dense = sum(
        _not_pruned(tensor, values).nbytes for name, tensor in {**state.parameters, **state.buffers}.items() if name not in mask.layers
    )
    return width * mask.num_survivors + 4 * rows + bits / 8 + dense


def dense_bytes(state: State) -> int:
    """Return the bytes of all tensors of a network, zeros included."""
    return sum(t.numel() * t.element_size() for t in (*state.parameters.values(), *state.buffers.values()))


def load_sparse(path: str | Path, model: nn.Module) -> LoadedSparse:
    """Load a sparse file into a model of the same architecture. Training it further needs the mask that comes with it.

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
    """Return weights, mask and description of a sparse file, whose tensors must have the names, shapes and types of `like`."""
    num_bytes = dense_bytes(like) + sum(t.numel() for t in like.parameters.values())  # a mask takes one byte per weight
    num_bytes *= 2  # A program may have tensors of its own, above all transposed ones.
    try:
        found = reader.read(path, max_decoded=num_bytes)
    except reader.TooLarge:
        raise ValueError(f"{path} holds a larger network than the model") from None
    wanted = {**like.parameters, **like.buffers}
    if differing := sorted({name for name in found.tensors if not name.startswith(DERIVED)} ^ wanted.keys()):
        raise ValueError(f"{path} and the model have different tensors: {', '.join(differing[:3])}")
    for name, tensor in wanted.items():
        if found.tensors[name].shape != tuple(tensor.shape):
            raise ValueError(f"{name} has shape {list(found.tensors[name].shape)} in {path}, {list(tensor.shape)} in the model")
    if foreign := [name for name in found.masks if name not in like.parameters and not name.startswith(DERIVED)]:
        raise ValueError(f"{path} prunes {foreign[0]}, which is no parameter of the model")
    # Cloned into memory that torch aligns, because alignment can change the last bit of a product.
    tensors = {name: torch.from_numpy(found.tensors[name]).to(tensor.dtype, copy=True) for name, tensor in wanted.items()}
    masks = {name: torch.from_numpy(found.masks[name].copy()) for name in like.parameters if name in found.masks}
    parameters = {name: tensors[name] for name in like.parameters}
    return State(parameters, {name: tensors[name] for name in like.buffers}), Mask(masks), found.about


def _type_name(tensor: Tensor, name: str) -> str:
    if tensor.dtype not in TYPES:
        raise ValueError(f"{name} has type {str(tensor.dtype).removeprefix('torch.')}, which a sparse file does not hold")
    return TYPES[tensor.dtype]


def _entropy(density: float) -> float:
    return -sum(p * math.log2(p) for p in (density, 1 - density) if p > 0)
