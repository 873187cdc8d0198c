"""What the ranks of a launch tell each other, as data of fixed types. Reading a message runs no code that the message names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

import msgspec
import numpy as np
import torch
from msgspec import Meta, Struct

from swamp.core.job import Job, Numerics, Optimizer
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.rules import Rule
from swamp.core.schedules import SWA, Schedule
from swamp.engines.engine import Progress
from swamp.engines.launch.ranks import ConnectionLost
from swamp.training.train import Diverged

MAX_TEXT = 100_000  # characters of an error's text, and of its traceback
Key = Annotated[str, Meta(pattern=r"^[0-9A-Za-z_-]{1,128}\Z")]  # A key is a part of file names.
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class BadMessage(RuntimeError):
    """A message is not what a rank of this launch would have sent."""


class RankFailed(RuntimeError):
    """Another rank has failed, for a reason that its message gives in a sentence."""


class Message(Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The base of all messages."""


class RankInfo(Message, frozen=True):
    """Rank R to rank 0, when it joins."""

    host: str
    must_match: dict[str, str]  # what must be the same on every rank
    sees_directory: bool = True  # whether it finds the folder of the launch in the run directory


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """An error as data. `name` is its class as far as `error_of` knows it; other classes are part of the text."""

    name: str
    text: str
    traceback: str = ""
    errno: int = 0
    path: str = ""


class Verdict(Message, frozen=True):
    """Rank 0 to all: whether the ranks can work together, and their hosts."""

    failure: Failure | None
    hosts: list[str] = []


class JobRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A job as data. Its mask is a file of its own, since jobs share masks."""

    key: Key
    task: str
    start: Key
    mask: Digest
    seed: Annotated[str, Meta(pattern=r"^[0-9]{1,4000}\Z")]  # a text, because a seed may be larger than integers of MessagePack
    path: tuple[str, ...]
    schedule: Schedule
    swa: SWA | None
    optimizer: Optimizer
    numerics: Numerics
    rule: Rule | None
    span: tuple[int, int] | None


class Announcement(Message, frozen=True):
    """Rank 0 to all: the jobs that are trained next."""

    jobs: list[JobRecord]


class GroupTurn(Message, frozen=True):
    """The leader of a group to its group: the job that they train next, if one is left, and the epoch of the checkpoint if there is one."""

    key: str | None
    epoch: int | None = None


class EpochEnded(Message, frozen=True):
    """Rank R to rank 0: an epoch of a training has ended."""

    progress: Progress


class JobTrained(Message, frozen=True):
    """Rank R to rank 0: the solution of a job is stored."""

    key: str


class NoJobLeft(Message, frozen=True):
    """Rank R to rank 0: its group takes no further job of this announcement."""

    announcement: int


class TrainingFailed(Message, frozen=True):
    """Rank R to rank 0: a job of this announcement failed."""

    announcement: int
    failure: Failure


AnyMessage = RankInfo | Verdict | Announcement | GroupTurn | EpochEnded | JobTrained | NoJobLeft | TrainingFailed
encode = msgspec.msgpack.encode
_decode_message = msgspec.msgpack.Decoder(AnyMessage).decode
_decode_bits = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def decode(data: bytes) -> AnyMessage:
    """Return the message that was encoded. Anything else is a ValueError."""
    try:
        return _decode_message(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


# -- jobs -------------------------------------------------------------------------------------------------------------------------


def record_of(job: Job) -> JobRecord:
    """Return the job as data."""
    given = (job.schedule, job.swa, job.optimizer, job.numerics, job.rule, job.span)
    return JobRecord(job.key, job.task, job.start, job.mask.digest, str(job.noise.seed), job.noise.path, *given)


def job_of(record: JobRecord, mask: Mask) -> Job:
    """Return the job of a record, which must have the key that the record states. The key covers the mask, too."""
    noise = Noise(int(record.seed), record.path)
    given = (record.schedule, record.swa, record.optimizer, record.numerics, record.rule, record.span)
    job = Job(record.task, record.start, mask, noise, *given)
    if job.key != record.key:
        raise BadMessage(f"the job {record.key} was announced with the settings of another, {job.key}")
    return job


def encode_mask(mask: Mask) -> bytes:
    """Return a mask as bits, without the shapes of its layers, which every rank knows from its task."""
    return encode({name: bits.numpy().tobytes() for name, bits in mask.packed().items()})


def decode_mask(data: bytes, shapes: Mapping[str, tuple[int, ...]]) -> Mask:
    """Return the mask that was encoded, of layers with these shapes. Anything else is a ValueError."""
    bits = _decode_bits(data)
    if {name: len(layer) for name, layer in bits.items()} != mask_sizes(shapes):
        raise ValueError("it is not a mask of this task")
    packed = {name: torch.from_numpy(np.frombuffer(layer, np.uint8).copy()) for name, layer in bits.items()}
    return Mask.unpacked(packed, {name: shapes[name] for name in bits})


def mask_sizes(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the number of bytes of each layer of an encoded mask."""
    return {name: -(-math.prod(shape) // 8) for name, shape in shapes.items()}


# -- errors -----------------------------------------------------------------------------------------------------------------------

# The classes that callers of an engine treat differently. Nothing but these is ever made from a message.
REBUILT: dict[str, type[Exception]] = {error.__name__: error for error in (ValueError, Diverged, ConnectionLost, RankFailed, BadMessage)}


def failure_of(error: Exception, traceback: str = "") -> Failure:
    """Describe an error by the nearest class that `error_of` knows."""
    text, traceback, kind = plain(str(error)[:MAX_TEXT]), plain(traceback[-MAX_TEXT:]), type(error)
    if isinstance(error, OSError) and error.errno is not None:
        return Failure("OSError", plain(error.strerror or ""), traceback, error.errno, plain(str(error.filename or "")))
    known = next((base.__name__ for base in kind.__mro__ if REBUILT.get(base.__name__) is base), "")
    if known:
        return Failure(known, text, traceback)
    if isinstance(error, RuntimeError) and kind.__module__.startswith("swamp."):
        return Failure("RankFailed", text, traceback)
    return Failure("RuntimeError", text if kind is RuntimeError else f"{kind.__name__}: {text}", traceback)


def plain(text: str) -> str:
    """Return a text that can be encoded: names of files may hold bytes that are not UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def error_of(failure: Failure) -> Exception:
    """Return the error that a rank has described. An unknown class gives a RuntimeError."""
    error: Exception
    if failure.name == "OSError":
        error = OSError(failure.errno, failure.text, *([failure.path] if failure.path else []))
    else:
        error = REBUILT.get(failure.name, RuntimeError)(failure.text)
    if failure.traceback:
        error.add_note(failure.traceback)
    return error
