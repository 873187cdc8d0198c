"""Writes prepared image sets: shards, tables and indices, each under a temporary name until it is whole and on the disk."""

from __future__ import annotations

import hashlib
import io
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import msgspec
import numpy as np

from swamp.tasks.datasets.decoding import Pixels
from swamp.tasks.datasets.shards import INDEX, ROW, ShardIndex, SplitIndex, StoredFile

UNFINISHED = ".part"  # how names of temporary files end


class ShardRecord(msgspec.Struct, frozen=True):
    """A finished shard: its file, and the rows of its images as bytes of a `ROW` table, in which the number of the shard is 0."""

    stored: StoredFile
    rows: bytes
    names: tuple[str, ...]
    corrupt: tuple[tuple[str, str], ...] = ()


class ShardWriter:
    """Writes one shard to a temporary file beside it, which takes its name when it is whole and on the disk."""

    def __init__(self, folder: Path, file: str) -> None:
        self.folder, self.file = folder, file
        self.temporary = _temporary(folder / file)
        self.output = self.temporary.open("wb")
        self.checksum = hashlib.sha256()
        self.size = 0
        self.rows: list[tuple[int, ...]] = []
        self.names: list[str] = []
        self.corrupt: list[tuple[str, str]] = []

    def add(self, name: str, data: bytes | Pixels, height: int, width: int, label: int) -> None:
        """Append an image: the raw pixels as a contiguous array, or the bytes of a JPEG file."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        with _naming(self.folder / self.file):
            self.output.write(view)
        self.checksum.update(view)
        self.rows.append((0, self.size, len(view), height, width, label))
        self.names.append(name)
        self.size += len(view)

    def leave_out(self, name: str, why: str) -> None:
        """Note an image that cannot be read."""
        self.corrupt.append((name, why))

    def close(self) -> ShardRecord:
        """Write what is buffered to the disk, give the file its name, and return what was written."""
        with _naming(self.folder / self.file):
            self.output.flush()
            os.fsync(self.output.fileno())
            self.output.close()
            os.replace(self.temporary, self.folder / self.file)
        rows = np.array(self.rows, ROW).tobytes()
        return ShardRecord(StoredFile(self.file, self.size, self.checksum.hexdigest()), rows, tuple(self.names), tuple(self.corrupt))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the temporary file of a shard that was not closed."""
        with suppress(OSError):
            self.output.close()
        with suppress(OSError):
            self.temporary.unlink()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Give errors of writing the name of the file, which they lack where they come from its descriptor."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def _temporary(path: Path) -> Path:
    """Return a name that no other process uses: one whose parent was killed may go on for a moment beside its successor."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}{UNFINISHED}")


def write_atomically(path: Path, data: bytes) -> StoredFile:
    """Replace a file once the bytes are on the disk."""
    temporary = _temporary(path)
    with _naming(path):
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    return StoredFile(path.name, len(data), hashlib.sha256(data).hexdigest())


def write_split(folder: Path, name: str, shards: Sequence[ShardRecord], classes: Sequence[int] | None = None) -> SplitIndex:
    """Write the table and the names of a split whose shards are written. Shards without an image have no file in the index."""
    used = [shard for shard in shards if shard.rows]
    table = np.concatenate([np.frombuffer(shard.rows, ROW) for shard in used])
    table["shard"] = np.repeat(np.arange(len(used)), [len(shard.names) for shard in used])
    buffer = io.BytesIO()
    np.save(buffer, table, allow_pickle=False)
    names = "".join(f"{one}\n" for shard in used for one in shard.names)
    return SplitIndex(
        count=len(table),
        table=write_atomically(folder / f"{name}.npy", buffer.getvalue()),
        names=write_atomically(folder / f"{name}.txt", names.encode()),
        shards=tuple(shard.stored for shard in used),
        corrupt=tuple(one for shard in shards for one in shard.corrupt),
        classes=None if classes is None else tuple(classes),
    )


def write_index(folder: Path, index: ShardIndex) -> None:
    """Write the index, which makes a folder a prepared one."""
    plain = msgspec.to_builtins(index)
    write_atomically(folder / INDEX, (json.dumps(plain, indent=1, ensure_ascii=True) + "\n").encode())
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
