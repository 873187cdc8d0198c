"""JSON and tensor files with checksums, and writes that either happen completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from swamp.core.keys import canonical, digest

METADATA_KEY = "swamp"  # The only metadata entry, because safetensors writes several in no fixed order.


class Damaged(ValueError):
    """A file does not hold what was written to it."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged ({why})")
        self.path, self.why = path, why

    def __reduce__(self) -> tuple[Any, ...]:
        return Damaged, (self.path, self.why)


def write_durably(path: Path, data: bytes, scratch: Path, mode: int | None = None) -> None:
    """Replace `path` atomically, once the bytes are on the disk. The temporary file is in `scratch`, on the same file system.

    `mode` are the permissions of the file, if not the usual ones."""
    make_directory(path.parent)
    make_directory(scratch)
    # A random name, because processes of several hosts may write here and have equal process ids.
    temporary = scratch / f"tmp-{uuid.uuid4().hex}"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(path.parent)


def write_output(path: Path, data: bytes) -> None:
    """Write a file that the user named, atomically: if that fails, what the file held before is still there.

    A link is followed, and the file keeps its permissions. What is no regular file, such as /dev/stdout, is written to as it is.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        place.write_bytes(data)
        return
    if place.exists() and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else None
    try:
        write_durably(place, data, place.parent, mode)
    except OSError as error:  # of the temporary file, whose name says nothing
        error.filename = str(path)
        raise


def make_directory(directory: Path) -> None:
    """Make a directory and its parents, and sync their names to the disk."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Sync a directory's new and removed names to the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def encode_arrays(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> bytes:
    """Return a safetensors file whose single metadata entry holds `meta` and a checksum of `meta` and the tensors."""
    text = canonical({"meta": dict(meta), "checksum": _checksum(tensors, meta)}).decode()
    return safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}, {METADATA_KEY: text})


def decode_arrays(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and `meta` of a file of `encode_arrays`, or raise `Damaged`."""
    data = path.read_bytes()
    try:
        # Cloned, because views into a file's bytes are not aligned as torch aligns, and alignment can change a product's last bit.
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(data).items()}
        length = int.from_bytes(data[:8], "little")
        stored = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][METADATA_KEY])
        meta, checksum = stored["meta"], stored["checksum"]
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Damaged(path, f"not readable: {error}") from None
    if _checksum(tensors, meta) != checksum:
        raise Damaged(path, "its checksum is wrong")
    return tensors, meta


def read_meta(path: Path) -> dict[str, Any]:
    """Return the `meta` of a file of `encode_arrays`, reading only the file's header and checking nothing."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            meta: dict[str, Any] = json.loads(json.loads(file.read(length))["__metadata__"][METADATA_KEY])["meta"]
        except (ValueError, KeyError, TypeError, OverflowError, MemoryError) as error:
            raise Damaged(path, f"not readable: {error}") from None
    return meta


def _checksum(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(dict(meta)) + digest(tensors).encode()).hexdigest()


def encode_json(value: Any) -> bytes:
    """Return an indented JSON file with a value and its checksum."""
    wrapped = {"checksum": hashlib.sha256(canonical(value)).hexdigest(), "value": json.loads(canonical(value))}
    return (json.dumps(wrapped, indent=1, sort_keys=True) + "\n").encode()


def decode_json(path: Path) -> Any:
    """Return the value in a file of `encode_json`, or raise `Damaged`."""
    try:
        wrapped = json.loads(path.read_bytes())
        value, checksum = wrapped["value"], wrapped["checksum"]
        good = hashlib.sha256(canonical(value)).hexdigest() == checksum
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(path, f"not readable: {error}") from None
    if not good:
        raise Damaged(path, "its checksum is wrong")
    return value


def explain_os_error(error: OSError) -> str:
    """Say in one sentence what failed on the disk, and for a full disk that nothing is lost."""
    place = f" {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"no space left to write{place}; what was stored is sound: free some space and run again"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"too many files are open{place and ':' + place}; allow more (ulimit -n) and run again: what was stored is sound"
    return f"cannot use{place or ' a file'}: {error.strerror or error}"


def json_lines(path: Path, needed: dict[str, type]) -> Iterator[dict[str, Any]]:
    """Yield the records of a JSON-lines file that have the needed entries with the needed types. Lines that a kill cut off are skipped."""
    try:
        texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for text in texts:
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and all(isinstance(record.get(name), kind) for name, kind in needed.items()):
            yield record
