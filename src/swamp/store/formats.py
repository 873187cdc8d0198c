"""JSON, tensors and arrays as bytes with checksums. Decoding believes nothing before it is checked: what is wrong with it is `Damaged`."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
from torch import Tensor

from swamp.core.keys import canonical, digest
from swamp.store.files import Damaged, Folder

METADATA_KEY = "swamp"  # The only metadata entry, because safetensors writes several in no fixed order.
HEADER_LIMIT = 100_000_000  # bytes of the header of a safetensors file, as safetensors itself limits it
ARRAYS_LIMIT = 1 << 30  # bytes of all arrays of an analysis


# -- tensors ----------------------------------------------------------------------------------------------------------------------


def encode_arrays(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> bytes:
    """Return a safetensors file whose single metadata entry holds `meta` and a checksum of `meta` and the tensors."""
    text = canonical({"meta": dict(meta), "checksum": _checksum(tensors, meta)}).decode()
    return safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}, {METADATA_KEY: text})


def decode_arrays(data: bytes, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and `meta` of the content of a file of `encode_arrays`, or raise `Damaged`."""
    try:
        # Sorted, because safetensors returns tensors in an order of its own each time, and sums over all of them depend on the order.
        # Cloned, because views into a file's bytes are not aligned as torch aligns, and alignment can change a product's last bit.
        tensors = {name: tensor.clone() for name, tensor in sorted(safetensors.torch.load(data).items())}
        length = int.from_bytes(data[:8], "little")
        meta, checksum = _decode_meta(data[8 : 8 + length])
        good = _checksum(tensors, meta) == checksum
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise Damaged(path, f"not readable: {error}") from None
    if not good:
        raise Damaged(path, "its checksum is wrong")
    return tensors, meta


def read_meta(folder: Folder, name: str) -> dict[str, Any]:
    """Return the `meta` of a file of `encode_arrays`, reading only the file's header and checking nothing."""
    return _read_header(folder, name)[0]


def read_checksum(folder: Folder, name: str) -> str:
    """Return the checksum that a file of `encode_arrays` says that it has, likewise."""
    return _read_header(folder, name)[1]


def _read_header(folder: Folder, name: str) -> tuple[dict[str, Any], str]:
    with folder.opened(name) as descriptor, open(descriptor, "rb", closefd=False) as file:
        try:
            length = int.from_bytes(file.read(8), "little")
            if length > HEADER_LIMIT:
                raise ValueError("its header is too long")
            return _decode_meta(file.read(length))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Damaged(folder.path / name, f"not readable: {error}") from None


def _decode_meta(header: bytes) -> tuple[dict[str, Any], str]:
    stored = json.loads(json.loads(header)["__metadata__"][METADATA_KEY])
    meta, checksum = stored["meta"], stored["checksum"]
    if not isinstance(meta, dict):
        raise ValueError("its metadata are no table")
    return meta, checksum


def _checksum(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(dict(meta)) + digest(tensors).encode()).hexdigest()


# -- JSON -------------------------------------------------------------------------------------------------------------------------


def encode_json(value: Any) -> bytes:
    """Return an indented JSON file with a value and its checksum."""
    wrapped = {"checksum": checksum_of(value), "value": json.loads(canonical(value))}
    return (json.dumps(wrapped, indent=1, sort_keys=True) + "\n").encode()


def decode_json(data: bytes, path: Path) -> Any:
    """Return the value in the content of a file of `encode_json`, or raise `Damaged`."""
    try:
        wrapped = json.loads(data)
        value, checksum = wrapped["value"], wrapped["checksum"]
        good = checksum_of(value) == checksum
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(path, f"not readable: {error}") from None
    if not good:
        raise Damaged(path, "its checksum is wrong")
    return value


def checksum_of(value: Any) -> str:
    """Return the checksum of a JSON value."""
    return hashlib.sha256(canonical(value)).hexdigest()


def json_lines(folder: Folder, name: str, needed: dict[str, type]) -> Iterator[dict[str, Any]]:
    """Yield the records of a JSON-lines file that have the needed entries with the needed types. Lines that a kill cut off are skipped; a
    file that is missing or cannot be read has none."""
    try:
        texts = folder.read_text(name).decode(errors="replace").splitlines()
    except (OSError, Damaged):
        return
    for text in texts:
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and all(isinstance(record.get(name), kind) for name, kind in needed.items()):
            yield record


# -- arrays of analyses -----------------------------------------------------------------------------------------------------------


class NamedArrays(dict[str, Any]):
    """Arrays by name. One that is asked for and not there means that the file is damaged."""

    def __init__(self, path: Path, arrays: Mapping[str, Any]) -> None:
        super().__init__(arrays)
        self.path = path

    def __missing__(self, name: str) -> Any:
        raise Damaged(self.path, f"it lacks {name!r}")


def encode_npz(arrays: Mapping[str, Any]) -> bytes:
    """Return an npz file, which is not compressed."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{name: np.asarray(value) for name, value in arrays.items()})
    return buffer.getvalue()


def decode_npz(data: bytes, path: Path) -> NamedArrays:
    """Return the arrays in the content of an npz file, or raise `Damaged`. Sizes are checked before anything is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > ARRAYS_LIMIT:
                raise ValueError(f"its arrays have more than {ARRAYS_LIMIT:,} bytes")
            # A member is unpacked up to the size that the directory names, and that was checked.
            return NamedArrays(path, {member.filename.removesuffix(".npy"): _decode_npy(archive.read(member)) for member in members})
    except Exception as error:  # Whatever zipfile, zlib and numpy raise about such content, it is no npz file.
        raise Damaged(path, f"not readable: {error or type(error).__name__}") from None


def _decode_npy(data: bytes) -> Any:
    """Return the array in the content of an npy file, whose header must fit the number of its bytes."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(file)
    left = len(data) - file.tell()
    if dtype.hasobject or dtype.itemsize * math.prod(shape) != left or any(size < 0 for size in shape):
        raise ValueError(f"an array of shape {shape} in {left} bytes")
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)
