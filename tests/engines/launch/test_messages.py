"""Jobs, masks and errors survive as data what they survived as pickles, and data that nobody sent is refused in one sentence."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec import structs

import swamp
from swamp.core.job import Job
from swamp.core.mask import Mask
from swamp.core.noise import Noise
from swamp.core.rules import DST, SAM, Gradual, RigL
from swamp.core.schedules import SWA
from swamp.engines.engine import Progress
from swamp.engines.launch import messages
from swamp.engines.launch.messages import Announcement, BadMessage, EpochEnded, RankFailed, error_of, failure_of, job_of, record_of
from swamp.engines.launch.ranks import ConnectionLost
from swamp.store.files import Damaged
from swamp.store.objects import Dropped
from swamp.training.train import Diverged
from tests.support.blobs import Blobs
from tests.support.deadly import Odd
from tests.support.jobs import make_job

PROGRESS = Progress("key", "cycle 3, particle 2", 1, 4, 0.25, record={"epoch": 0, "loss": 0.25, "macs": 12.0, "learning_rate": 0.1})

ENGINES = Path(swamp.__file__).parent / "engines"


def sent(job: Job) -> Job:
    message = messages.decode(messages.encode(Announcement([record_of(job)])))
    assert isinstance(message, Announcement)
    shapes = Blobs().prunable
    return job_of(message.jobs[0], messages.decode_mask(messages.encode_mask(job.mask), shapes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"swa": SWA(start=0.5, entry="anneal:3"), "span": (1, 3)},
        {"noise": Noise(2**100).fold("cycle", 3, "a/b", "ä")},
        {"rule": SAM(rho=0.05)},
        {"rule": RigL(interval=2, fraction=0.3, until=0.75)},
        {"rule": Gradual(num_keep=5, interval=1, begin=0.1, end=1 / 3)},
        {"rule": DST(alpha=1e-6)},
    ],
)
def test_a_job_arrives_with_its_key(changes: dict[str, Any]) -> None:
    job = make_job(Blobs(), **changes)
    found = sent(job)
    assert found.key == job.key
    assert (found.rule, found.span, found.noise) == (job.rule, job.span, job.noise)
    assert list(found.mask.layers) == list(job.mask.layers)
    assert all(torch.equal(layer, job.mask.layers[name]) for name, layer in found.mask.layers.items())


def test_a_job_with_the_settings_of_another_is_refused() -> None:
    job = make_job(Blobs())
    record = record_of(job)
    for change in ({"seed": "1"}, {"start": "elsewhere"}, {"span": (0, 1)}, {"key": "0" * 40}, {"rule": SAM(rho=0.1)}):
        with pytest.raises(BadMessage, match="was announced with the settings of another"):
            job_of(structs.replace(record, **change), job.mask)
    with pytest.raises(BadMessage, match="was announced with the settings of another"):
        job_of(record, Mask.ones(Blobs().prunable))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"cposix\nsystem\n(S'true'\ntR.",  # a pickle
        b"\x91" * 200_000,
        b"\x81" * 200_000,
        b"\xdf\xff\xff\xff\xff",
        msgspec.msgpack.encode({"type": "JobTrained", "key": 3}),
        msgspec.msgpack.encode({"type": "JobTrained", "key": "a", "more": 1}),
        msgspec.msgpack.encode({"type": "Shell", "command": "true"}),
        msgspec.msgpack.encode({"type": "EpochEnded", "progress": {**vars(PROGRESS), "record": {"loss": [[1]]}}}),
        msgspec.msgpack.encode({"type": "Announcement", "jobs": [{"key": "../../elsewhere"}]}),
        msgspec.msgpack.encode({"type": "JobTrained", "key": "a"})[:-1] + b"\xff",
    ],
)
def test_what_is_no_message_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as found:
        messages.decode(data)
    assert "\n" not in str(found.value)


def test_names_of_files_in_a_job_have_a_fixed_form() -> None:
    record = record_of(make_job(Blobs()))
    for change in ({"start": "../x"}, {"mask": "0" * 63}, {"mask": "0" * 64 + "\n"}, {"key": "a/b"}, {"seed": "-1"}):
        with pytest.raises(ValueError, match="matching regex"):
            messages.decode(messages.encode(Announcement([structs.replace(record, **change)])))


def test_a_mask_of_another_task_is_refused() -> None:
    shapes = Blobs().prunable
    data = messages.encode_mask(Mask.ones(shapes))
    assert messages.decode_mask(data, shapes).digest == Mask.ones(shapes).digest
    for other in ({**shapes, "first.weight": (8, 12)}, {"first.weight": (8, 4)}, {**shapes, "more": (8,)}):
        with pytest.raises(ValueError, match="not a mask of this task"):
            messages.decode_mask(data, other)
    with pytest.raises(ValueError, match=r"Expected `bytes`|truncated"):
        messages.decode_mask(msgspec.msgpack.encode({"first.weight": [1]}), shapes)


def test_progress_arrives_as_it_was() -> None:
    found = messages.decode(messages.encode(EpochEnded(PROGRESS)))
    assert isinstance(found, EpochEnded)
    assert found.progress == PROGRESS


class Local(RuntimeError):
    """An error that no message can name."""


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError("mistake"), ValueError, "mistake"),
        (Diverged("the loss became nan"), Diverged, "the loss became nan"),
        (ConnectionLost("gone"), ConnectionLost, "gone"),
        (Damaged(Path("a"), "empty"), ValueError, "a is damaged (empty)"),
        (Dropped("not kept"), RankFailed, "not kept"),
        (OSError(28, "No space left on device", "/x"), OSError, "[Errno 28] No space left on device: '/x'"),
        (FileNotFoundError(2, "No such file"), FileNotFoundError, "[Errno 2] No such file"),
        (OSError("told nothing"), RuntimeError, "OSError: told nothing"),
        (KeyError("a"), RuntimeError, "KeyError: 'a'"),
        (Local("mine"), RuntimeError, "Local: mine"),
        (Odd("one", "two"), RuntimeError, "Odd: one"),
        (RuntimeError("\udcff"), RuntimeError, "\\udcff"),
    ],
)
def test_errors_arrive_as_what_callers_distinguish(error: Exception, kind: type[Exception], text: str) -> None:
    failure = msgspec.msgpack.decode(messages.encode(failure_of(error, "Traceback …")), type=messages.Failure)
    found = error_of(failure)
    assert type(found) is kind
    assert str(found) == text
    assert found.__notes__ == ["Traceback …"]


def test_a_message_cannot_name_a_class() -> None:
    for name in ("SystemExit", "KeyboardInterrupt", "swamp.store.files.Damaged", "__import__", "type", ""):
        assert type(error_of(messages.Failure(name, "text"))) is RuntimeError


def test_long_errors_are_cut() -> None:
    failure = failure_of(ValueError("x" * 10**7), "y" * 10**7)
    assert len(messages.encode(failure)) < 3 * messages.MAX_TEXT


@pytest.mark.parametrize("path", [ENGINES / "distributed.py", *sorted((ENGINES / "launch").glob("*.py"))], ids=lambda path: path.stem)
def test_no_module_between_ranks_unpickles(path: Path) -> None:
    source = path.read_text()
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    imported = {alias.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}
    assert not (names | imported) & {"pickle", "broadcast_object_list", "all_gather_object", "queue_pop", "portable", "eval", "exec"}
