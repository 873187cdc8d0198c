"""Read a sparse network. This file needs only numpy, and can be copied and used without swamp.

    network = read("model.swamp")
    network.tensors, network.masks, network.about, network.program

A file of format 1 is a safetensors file: eight bytes with the header's length N (little-endian), N bytes of JSON, then the data. Its
tensors are not those of the network but three or more streams. Each concatenates data of the network's tensors in the order of `meta`:

    values      F32, F16 or BF16: the surviving weights of all pruned tensors, row by row
    positions   U8: the positions of the survivors, some bytes for each pruned tensor
    dense.TYPE  the tensors of one type that were not pruned

The only metadata entry is `swamp`, a JSON text {"checksum", "meta"}. meta = {"format": 1, "about": anything,
"pruned": [[name, shape, code, number of survivors, bytes of positions], …], "dense": [[name, type, shape], …]}.

    code bits   one bit per weight, the first in the highest bit of the first byte; bits after the last weight are 0
    code gaps   a byte b < 255: b weights are pruned, the next one survives; 255: 255 weights are pruned. The stream ends less than
                255 weights before the tensor's end, so a byte stands for at most 256 weights and a small file cannot need much memory.

A file of format 2 also says how the network computes, and its values may be 8-bit integers:

    values      I8: numbers from -127 to 127; a weight is its number times the scale of its row
    scales      F32, only if the values are I8: for each pruned tensor as many positive numbers as it has rows (its first dimension)

Its meta has the entry "program", which is null or

    program = {"inputs": [input, …], "nodes": [node, …], "outputs": [output, …]}
    input   = {"name", "kind": "image", "vector", "sequence", "signal" or "tokens", "size": [channels, height, width]}
    output  = {"name", "value": a number, "kind": "image", "vector", "sequence" or "signal"}
    node    = {"op", "in": [numbers of values], attributes}

A program computes one example. Every value is an image of (channels, height, width); the inputs are the first values, and each node makes
one. A caller's array for a batch of B is (B, C, H, W) for an image, (B, C) for a vector, (B, W, C) for a sequence, (B, C, W) for a signal
and (B, W), of integers, for tokens. Heights and widths of images, and the width of the others, may be null: the call decides. Tensors are
named as in `pruned` and `dense`; names that begin with "program:" are of tensors that only the program needs. `OPERATIONS` lists the
nodes and their attributes, all of which are there, null where something is missing; docs/sparse-format.md says what they compute.

The checksum is a sha256 over, for each stream by name, the JSON text of [name, type, shape] and the bytes; then the JSON text of meta.
JSON texts have sorted keys and no spaces, and are nested at most 64 deep. Nothing in a file is ever executed.

Whatever a file holds, the only error about its content is `Malformed`. A file that cannot be opened is an OSError.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

FORMATS = (1, 2)
ESCAPE = 255
MAX_HEADER = 8 << 20  # bytes; the header of a hundred thousand tensors is smaller
MAX_DECODED = 16 << 30  # bytes; the default of `max_decoded`
MAX_NESTING = 64  # tables and lists inside each other; Python's own limit depends on the caller
MAX_ELEMENTS = 1 << 59  # numpy refuses larger shapes, also those that hold nothing because one side is 0
MAX_SCALE = 1e36  # 127 times this is still a float32
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "F16": 2, "BF16": 2, "I32": 4, "F32": 4, "I64": 8, "F64": 8}
NUMPY = {"BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "F16": "<f2", "I32": "<i4", "F32": "<f4", "I64": "<i8", "F64": "<f8"}
FLOATS = ("F32", "F16", "BF16")


class Malformed(ValueError):
    """The file is not a valid sparse network."""


class TooLarge(Malformed):
    """The file's tensors would take more memory than the caller allows."""


class DecodedNetwork(NamedTuple):
    """The content of a file. 16-bit floats are widened to float32, and 8-bit integers multiplied with their scales."""

    tensors: dict[str, np.ndarray]  # by name, with zeros for pruned weights
    masks: dict[str, np.ndarray]  # by name of the pruned tensors: which weights survive
    about: dict[str, Any]
    program: dict[str, Any] | None  # how the network computes
    scales: dict[str, np.ndarray]  # by name of the pruned tensors, one for each row, if the values are 8-bit integers


class Stream(NamedTuple):
    """One tensor of the safetensors file."""

    kind: str
    shape: list[int]
    data: memoryview


def read(path: str | os.PathLike[str], max_decoded: int = MAX_DECODED) -> DecodedNetwork:
    """Return the network in a file, or raise `Malformed`. Memory is allocated only if the tensors take at most `max_decoded` bytes."""
    # Without O_NONBLOCK, opening a named pipe would wait for somebody to write to it.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Malformed(f"{path} is no sparse network: it is no regular file")
        size, prefix = status.st_size, file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or length > min(size - 8, MAX_HEADER):
            raise Malformed(f"{path} is no sparse network: its header is cut off or too long")
        if size - 8 - length > max_decoded:  # encoded tensors are never larger than decoded ones
            raise TooLarge(f"{path} is no sparse network: its {size} bytes are more than the {max_decoded} that its tensors may take")
        content = prefix + file.read(size - 8)  # and nothing that is written to its end meanwhile
    try:
        return decode(content, max_decoded)
    except Malformed as error:
        raise type(error)(f"{path} is no sound sparse network: {error}") from None


def decode(content: bytes, max_decoded: int = MAX_DECODED) -> DecodedNetwork:
    """Return the network in the bytes of a file, or raise `Malformed`."""
    try:
        return _decode(content, max_decoded)
    except MemoryError:
        raise TooLarge("its tensors take more memory than there is") from None


def _decode(content: bytes, max_decoded: int) -> DecodedNetwork:
    streams, metadata = split(content)
    _check(list(metadata) == ["swamp"], "its metadata are not those of a sparse network")
    stored = _parse(metadata["swamp"])
    _check(isinstance(stored, dict) and stored.keys() == {"checksum", "meta"}, "its metadata have other entries than checksum and meta")
    meta = stored["meta"]
    _check(isinstance(meta, dict) and "format" in meta, "its meta has other entries than it should")
    known = type(meta["format"]) is int and meta["format"] in FORMATS
    _check(known, f"its format is {repr(meta['format'])[:20]}, and this reader knows {' and '.join(map(str, FORMATS))}")
    entries = {"format", "about", "pruned", "dense"} | ({"program"} if meta["format"] == 2 else set())
    _check(meta.keys() == entries, "its meta has other entries than it should")
    _check(checksum(streams, meta) == stored["checksum"], "its checksum is wrong")
    _check(isinstance(meta["about"], dict), "`about` is no table")
    pruned, dense = _pruned(meta["pruned"]), _dense(meta["dense"])
    names = [entry[0] for entry in pruned] + [entry[0] for entry in dense]
    _check(len(set(names)) == len(names), "a tensor is named twice")
    decoded = sum(5 * math.prod(shape) for _, shape, _, _, _ in pruned) + sum(SIZES[kind] * math.prod(shape) for _, kind, shape in dense)
    if decoded > max_decoded:
        raise TooLarge(f"its tensors would take {decoded} bytes, more than the {max_decoded} that are allowed")
    integers = meta["format"] == 2 and "values" in streams and streams["values"].kind == "I8"
    kinds = {f"dense.{kind}" for _, kind, _ in dense} | ({"scales"} if integers else set())
    _check(streams.keys() == kinds | {"values", "positions"}, "its streams are not those that its tensors need")
    good = (streams["values"].kind in FLOATS or integers) and streams["positions"].kind == "U8"
    _check(good and (not integers or streams["scales"].kind == "F32"), "values, scales or positions have a wrong type")
    program = meta.get("program")
    if program is not None:
        floats = {entry[0]: entry[1] for entry in pruned} | {name: shape for name, kind, shape in dense if kind in FLOATS}
        _check_program(program, floats, {entry[0] for entry in pruned} if integers else set())
    masks, values = _masks(streams["positions"].data, pruned), _floats(streams["values"])
    _check(len(values) == sum(entry[3] for entry in pruned), "it holds more or fewer values than survivors")
    scales = _scales(streams["scales"], pruned) if integers else {}
    _check(not integers or not len(values) or values.min() >= -127, "its 8-bit values are not all from -127 to 127")
    tensors, first = {}, 0
    for name, _, _, survivors, _ in pruned:
        tensors[name] = np.zeros(masks[name].shape, np.float32)
        tensors[name][masks[name]] = values[first : first + survivors]
        if integers:
            tensors[name] *= scales[name].reshape(-1, *[1] * (masks[name].ndim - 1))
        first += survivors
    return DecodedNetwork(tensors | _dense_tensors(streams, dense), masks, meta["about"], program, scales)


def split(content: bytes) -> tuple[dict[str, Stream], dict[str, str]]:
    """Return the streams and metadata of a safetensors file, after checking that the streams cover the data exactly."""
    length = int.from_bytes(content[:8], "little")
    _check(len(content) >= 8 and length <= min(len(content) - 8, MAX_HEADER), "its header is cut off or too long")
    header = _parse(content[8 : 8 + length])
    _check(isinstance(header, dict), "its header is no table")
    metadata = header.pop("__metadata__", {})
    _check(isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values()), "its metadata are no table of texts")
    data = memoryview(content)[8 + length :]
    found, ranges = {}, []
    for name, entry in header.items():
        _check(isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"}, "a stream is not described as it should be")
        kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        _check(isinstance(kind, str) and kind in SIZES and _is_shape(shape), "a stream has an unknown type or no proper shape")
        _check(_are_counts(offsets) and len(offsets) == 2 and offsets[0] <= offsets[1] <= len(data), "a stream lies outside of the file")
        _check(offsets[1] - offsets[0] == SIZES[kind] * math.prod(shape), "a stream's length is not what its shape says")
        ranges.append(offsets)
        found[name] = Stream(kind, shape, data[offsets[0] : offsets[1]])
    ranges.sort()
    ends = [0, *(end for _, end in ranges)]
    _check([begin for begin, _ in ranges] == ends[:-1] and ends[-1] == len(data), "its streams overlap or leave gaps")
    return found, metadata


def checksum(streams: Mapping[str, Stream], meta: Any) -> str:
    """Return the checksum of a file with these streams and meta."""
    total = hashlib.sha256()
    for name in sorted(streams):
        stream = streams[name]
        total.update(text_of([name, stream.kind, stream.shape]))
        total.update(stream.data)
    total.update(text_of(meta))
    return total.hexdigest()


def text_of(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _check(good: bool, otherwise: str) -> None:
    if not good:
        raise Malformed(otherwise)


def _parse(text: str | bytes) -> Any:
    """Parse JSON and refuse duplicate names, NaN, infinities, very large numbers and deep nesting."""

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        _check(len(found) == len(pairs), "its header names something twice")
        return found

    def refuse(constant: str) -> Any:
        raise Malformed(f"its header holds {constant}")

    def number(digits: str) -> int:
        _check(len(digits) < 20, "its header holds a number that is too large")
        return int(digits)

    def real(digits: str) -> float:
        value = float(digits)
        _check(math.isfinite(value), "its header holds a number that is too large")
        return value

    try:
        # Refuse text that is not UTF-8, and surrogates, which JSON can contain but which cannot be hashed.
        plain = (text.decode() if isinstance(text, bytes) else text).encode().decode()
        parsed = json.loads(plain, object_pairs_hook=table, parse_constant=refuse, parse_int=number, parse_float=real)
    except Malformed:
        raise
    except (ValueError, RecursionError):
        raise Malformed("its header is no JSON text") from None
    level, depth = [parsed], 0
    while level := [inner for one in level if isinstance(one, (dict, list)) for inner in (one.values() if isinstance(one, dict) else one)]:
        depth += 1
        _check(depth <= MAX_NESTING, f"its header is nested more than {MAX_NESTING} deep")
    return parsed


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(_is_count(value) for value in values)


def _is_shape(shape: Any) -> bool:
    return _are_counts(shape) and len(shape) <= 32 and math.prod(side or 1 for side in shape) <= MAX_ELEMENTS


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and not any("\ud800" <= letter <= "\udfff" for letter in name)


def _pruned(entries: Any) -> list[tuple[str, list[int], str, int, int]]:
    _check(isinstance(entries, list), "its list of pruned tensors is none")
    for entry in entries:
        good = isinstance(entry, list) and len(entry) == 5 and _is_name(entry[0]) and _is_shape(entry[1]) and entry[2] in ("bits", "gaps")
        _check(good and _is_count(entry[3]) and _is_count(entry[4]), "a pruned tensor is not described as it should be")
        length, code, size = math.prod(entry[1]), entry[2], entry[4]
        fits = size == -(-length // 8) if code == "bits" else size <= length <= 256 * size + ESCAPE - 1
        _check(fits and entry[3] <= length, f"{entry[0]!r} of shape {entry[1]} cannot have {entry[3]} survivors in {size} bytes")
    return [tuple(entry) for entry in entries]


def _dense(entries: Any) -> list[tuple[str, str, list[int]]]:
    _check(isinstance(entries, list), "its list of dense tensors is none")
    for entry in entries:
        good = isinstance(entry, list) and len(entry) == 3 and _is_name(entry[0]) and isinstance(entry[1], str) and _is_shape(entry[2])
        _check(good and entry[1] in SIZES, "a dense tensor is not described as it should be")
    return [tuple(entry) for entry in entries]


def _masks(stream: memoryview, pruned: list[tuple[str, list[int], str, int, int]]) -> dict[str, np.ndarray]:
    """Return the masks of the pruned tensors."""
    _check(len(stream) == sum(entry[4] for entry in pruned), "it holds more or fewer positions than its tensors need")
    masks, first = {}, 0
    for name, shape, code, survivors, size in pruned:
        part = np.frombuffer(stream[first : first + size], np.uint8)
        flat = (_from_bits if code == "bits" else _from_gaps)(part, math.prod(shape), name)
        _check(int(flat.sum()) == survivors, f"{name!r} has another number of survivors than it says")
        masks[name] = flat.reshape(shape)
        first += size
    return masks


def _from_bits(packed: np.ndarray, length: int, name: str) -> np.ndarray:
    bits = np.unpackbits(packed)
    _check(not bits[length:].any(), f"{name!r} has survivors beyond its end")
    return bits[:length].view(bool)


def _from_gaps(gaps: np.ndarray, length: int, name: str) -> np.ndarray:
    alive = gaps != ESCAPE
    ends = np.cumsum(gaps + alive.astype(np.int64))  # number of weights up to the end of each byte
    reached = int(ends[-1]) if len(ends) else 0
    _check(reached <= length < reached + ESCAPE, f"the positions of {name!r} do not end where it ends")
    flat = np.zeros(length, bool)
    flat[ends[alive] - 1] = True
    return flat


def _floats(stream: Stream) -> np.ndarray:
    if stream.kind == "BF16":  # the upper half of a float32
        return (np.frombuffer(stream.data, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(stream.data, NUMPY[stream.kind]).astype(np.float32)


def _dense_tensors(streams: Mapping[str, Stream], dense: list[tuple[str, str, list[int]]]) -> dict[str, np.ndarray]:
    """Return the tensors that were not pruned."""
    tensors, first = {}, dict.fromkeys(streams, 0)
    for name, kind, shape in dense:
        stream, size = f"dense.{kind}", SIZES[kind] * math.prod(shape)
        data = streams[stream].data[first[stream] : first[stream] + size]
        _check(len(data) == size, f"{name!r} is cut off")
        if kind == "BOOL":
            _check(not (np.frombuffer(data, np.uint8) > 1).any(), f"{name!r} holds booleans other than 0 and 1")
        floats = kind in ("F16", "BF16")
        tensors[name] = (_floats(Stream(kind, shape, data)) if floats else np.frombuffer(data, NUMPY[kind]).copy()).reshape(shape)
        first[stream] += size
    _check(all(first[name] == len(streams[name].data) for name in streams if name.startswith("dense.")), "it holds data of no tensor")
    return tensors


def _scales(stream: Stream, pruned: list[tuple[str, list[int], str, int, int]]) -> dict[str, np.ndarray]:
    """Return the scales of the rows of each pruned tensor."""
    _check(all(shape for _, shape, _, _, _ in pruned), "a number by itself has no rows that could have scales")
    numbers, first, scales = _floats(stream), 0, {}
    _check(len(numbers) == sum(shape[0] for _, shape, _, _, _ in pruned), "it holds more or fewer scales than rows")
    _check(bool(((numbers > 0) & (numbers < MAX_SCALE)).all()), "its scales are not all positive numbers of a sensible size")
    for name, shape, _, _, _ in pruned:
        scales[name] = numbers[first : first + shape[0]]
        first += shape[0]
    return scales


# -- programs ----------------------------------------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "relu", "relu6", "leaky_relu", "elu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid", "softplus", "mish",
}  # fmt: skip
WITH_SLOPE = ("leaky_relu", "elu")
KINDS = ("image", "vector", "sequence", "signal", "tokens")


Test = Callable[[Any], bool]  # whether a value is what it should be


class Operation(NamedTuple):
    """A kind of nodes: how many values one reads, the dimensions of its tensors, and what its other attributes may be."""

    inputs: tuple[int, int | None]  # at least and at most
    tensors: dict[str, tuple[int, ...]]  # numbers of dimensions that fit; -1: the tensor may be missing
    others: dict[str, Test]


def _is_real(value: Any) -> bool:
    return type(value) in (int, float)


def _is_whole(value: Any) -> bool:
    return type(value) is int


def _is_truth(value: Any) -> bool:
    return type(value) is bool


def _is_positive(value: Any) -> bool:
    return _is_count(value) and value > 0


def _two(test: Test) -> Test:
    return lambda value: isinstance(value, list) and len(value) == 2 and all(map(test, value))


def _or_null(test: Test) -> Test:
    return lambda value: value is None or test(value)


def _one_of(*allowed: str) -> Test:
    return lambda value: isinstance(value, str) and value in allowed


_NORM: dict[str, tuple[int, ...]] = {"weight": (1, -1), "bias": (1, -1)}
_POOL = {"kernel": _two(_is_positive), "stride": _two(_is_positive), "padding": _two(_is_count)}
OPERATIONS = {
    "conv": Operation(
        (1, 1),
        {"weight": (3, 4), "bias": (1, -1)},
        {"stride": _two(_is_positive), "padding": _two(_is_count), "dilation": _two(_is_positive), "groups": _is_positive},
    ),
    "linear": Operation((1, 1), {"weight": (2,), "bias": (1, -1)}, {}),
    "transposed_linear": Operation((1, 1), {"weight": (2,), "bias": (1, -1)}, {}),
    "flatten": Operation((1, 1), {}, {}),
    "batch_norm": Operation((1, 1), {**_NORM, "mean": (1,), "variance": (1,)}, {"eps": _is_real}),
    "layer_norm": Operation((1, 1), _NORM, {"eps": _is_real}),
    "group_norm": Operation((1, 1), _NORM, {"groups": _is_positive, "eps": _is_real}),
    "activation": Operation((1, 1), {}, {"kind": _one_of(*ACTIVATIONS), "slope": _or_null(_is_real)}),
    "affine": Operation((1, 1), {}, {"factor": _is_real, "offset": _is_real}),
    "add": Operation((2, 2), {}, {}),
    "multiply": Operation((2, 2), {}, {}),
    "softmax": Operation((1, 1), {}, {}),
    "attention": Operation((3, 4), {}, {"heads": _is_positive, "causal": _is_truth, "scale": _is_real}),
    "embedding": Operation((1, 1), {"weight": (2,)}, {}),
    "constant": Operation((0, 0), {"weight": (1, 2)}, {}),
    "positions": Operation((1, 1), {"weight": (2,)}, {"offset": _is_count}),
    "counted_positions": Operation((1, 1), {"weight": (2,)}, {"padding": _is_whole, "offset": _is_count}),
    "concat": Operation((1, None), {}, {"axis": _one_of("channels", "pixels")}),
    "channels": Operation((1, 1), {}, {"start": _is_count, "count": _is_positive, "step": _is_positive}),
    "pixels": Operation((1, 1), {}, {"start": _is_whole, "count": _or_null(_is_positive)}),
    "max_pool": Operation((1, 1), {}, _POOL),
    "avg_pool": Operation((1, 1), {}, {**_POOL, "include_padding": _is_truth}),
    "global_mean": Operation((1, 1), {}, {}),
    "global_max": Operation((1, 1), {}, {}),
    "upsample": Operation((1, 1), {}, {"factor": _two(_is_positive), "mode": _one_of("nearest", "bilinear"), "align_corners": _is_truth}),
}
QUANTISED = ("conv", "linear", "transposed_linear")  # nodes that may have the attribute "input"


def _check_program(program: Any, shapes: Mapping[str, list[int]], integers: set[str]) -> None:
    """Check the structure of a program. `shapes` are those of all float tensors, and `integers` names those of 8-bit values."""
    _check(isinstance(program, dict) and program.keys() == {"inputs", "nodes", "outputs"}, "its program has other entries than it should")
    _check(all(isinstance(part, list) for part in program.values()), "the parts of its program are no lists")
    for entry in program["inputs"]:
        _check(isinstance(entry, dict) and entry.keys() == {"name", "kind", "size"}, "an input is not described as it should be")
        _check(
            _is_name(entry["name"]) and entry["kind"] in KINDS and _is_input_size(entry["kind"], entry["size"]),
            "an input is not described as it should be",
        )
    count = len(program["inputs"])
    for node in program["nodes"]:
        _check_node(node, count, shapes, integers)
        count += 1
    for output in program["outputs"]:
        _check(isinstance(output, dict) and output.keys() == {"name", "value", "kind"}, "an output is not described as it should be")
        good = _is_name(output["name"]) and output["kind"] in KINDS[:-1] and _is_count(output["value"]) and output["value"] < count
        _check(good, "an output is not described as it should be")
    for part in ("inputs", "outputs"):
        names = [entry["name"] for entry in program[part]]
        _check(len(set(names)) == len(names) and names != [], f"its program has no {part}, or two of one name")


def _is_input_size(kind: str, size: Any) -> bool:
    if (
        not isinstance(size, list)
        or len(size) != 3
        or not _is_positive(size[0])
        or math.prod(side or 1 for side in size if _is_count(side)) > MAX_ELEMENTS
    ):
        return False
    channels, height, width = size
    free = [side is None or _is_positive(side) for side in (height, width)]
    if kind == "image":
        return all(free)
    return height == 1 and type(height) is int and free[1] and (kind != "vector" or width == 1) and (kind != "tokens" or channels == 1)


def _check_node(node: Any, number: int, shapes: Mapping[str, list[int]], integers: set[str]) -> None:
    """Check one node, whose value gets this number."""
    _check(isinstance(node, dict) and isinstance(node.get("op"), str) and node["op"] in OPERATIONS, "its program has an unknown operation")
    name, operation = node["op"], OPERATIONS[node["op"]]
    optional = {"input"} & node.keys() if name in QUANTISED else set()
    wanted = {"op", "in", *operation.tensors, *operation.others, *optional}
    _check(node.keys() == wanted, f"a node {name} of its program has other attributes than it should")
    least, most = operation.inputs
    good = _are_counts(node["in"]) and len(node["in"]) >= least and (most is None or len(node["in"]) <= most)
    _check(good and all(value < number for value in node["in"]), f"a node {name} of its program reads other values than it can")
    for attribute, dimensions in operation.tensors.items():
        tensor = node[attribute]
        known = -1 in dimensions if tensor is None else isinstance(tensor, str) and tensor in shapes and len(shapes[tensor]) in dimensions
        _check(known, f"the {attribute} of a node {name} of its program is no tensor of the file that fits")
    for attribute, test in operation.others.items():
        _check(test(node[attribute]), f"the {attribute} of a node {name} of its program is not what it should be")
    if name == "activation":
        _check(
            (node["slope"] is not None) == (node["kind"] in WITH_SLOPE), "an activation of its program has a slope without need, or none"
        )
    if optional:
        fits = _is_input_range(node["input"]) and node["weight"] in integers
        _check(fits, f"the input of a node {name} of its program is not what it should be")


def _is_input_range(value: Any) -> bool:
    """Whether a value says how 8-bit inputs are made: the scale, and what stands for 0."""
    return (
        isinstance(value, list) and len(value) == 2 and _is_real(value[0]) and value[0] > 0 and _is_whole(value[1]) and value[1] in (0, 64)
    )
