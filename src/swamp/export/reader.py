"""Read a sparse network. This file needs only numpy, and can be copied and used without swamp.

    tensors, masks, about = read("model.swamp")

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
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

FORMAT = 1
ESCAPE = 255
MAX_HEADER = 8 << 20  # bytes; the header of a hundred thousand tensors is smaller
MAX_DECODED = 16 << 30  # bytes; the default of `max_decoded`
MAX_NESTING = 64  # tables and lists inside each other; Python's own limit depends on the caller
MAX_ELEMENTS = 1 << 59  # numpy refuses larger shapes, also those that hold nothing because one side is 0
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "F16": 2, "BF16": 2, "I32": 4, "F32": 4, "I64": 8, "F64": 8}
NUMPY = {"BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "F16": "<f2", "I32": "<i4", "F32": "<f4", "I64": "<i8", "F64": "<f8"}
VALUES = ("F32", "F16", "BF16")


class Malformed(ValueError):
    """The file is not a valid sparse network."""


class TooLarge(Malformed):
    """The file's tensors would take more memory than the caller allows."""


class DecodedNetwork(NamedTuple):
    """The content of a file. 16-bit floats are widened to float32."""

    tensors: dict[str, np.ndarray]  # by name, with zeros for pruned weights
    masks: dict[str, np.ndarray]  # by name of the pruned tensors: which weights survive
    about: dict[str, Any]


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
    _check(isinstance(meta, dict) and meta.keys() == {"format", "about", "pruned", "dense"}, "its meta has other entries than it should")
    _check(
        meta["format"] == FORMAT and type(meta["format"]) is int,
        f"its format is {repr(meta['format'])[:20]}, and this reader knows {FORMAT}",
    )
    _check(checksum(streams, meta) == stored["checksum"], "its checksum is wrong")
    _check(isinstance(meta["about"], dict), "`about` is no table")
    pruned, dense = _pruned(meta["pruned"]), _dense(meta["dense"])
    names = [entry[0] for entry in pruned] + [entry[0] for entry in dense]
    _check(len(set(names)) == len(names), "a tensor is named twice")
    decoded = sum(5 * math.prod(shape) for _, shape, _, _, _ in pruned) + sum(SIZES[kind] * math.prod(shape) for _, kind, shape in dense)
    if decoded > max_decoded:
        raise TooLarge(f"its tensors would take {decoded} bytes, more than the {max_decoded} that are allowed")
    kinds = {f"dense.{kind}" for _, kind, _ in dense}
    _check(streams.keys() == kinds | {"values", "positions"}, "its streams are not those that its tensors need")
    _check(streams["values"].kind in VALUES and streams["positions"].kind == "U8", "values or positions have a wrong type")
    masks, values = _masks(streams["positions"].data, pruned), _floats(streams["values"])
    _check(len(values) == sum(entry[3] for entry in pruned), "it holds more or fewer values than survivors")
    tensors, first = {}, 0
    for name, _, _, survivors, _ in pruned:
        tensors[name] = np.zeros(masks[name].shape, np.float32)
        tensors[name][masks[name]] = values[first : first + survivors]
        first += survivors
    return DecodedNetwork(tensors | _dense_tensors(streams, dense), masks, meta["about"])


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
