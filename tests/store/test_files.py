from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from swamp.store import files
from swamp.store.files import Damaged, Folder
from swamp.store.formats import decode_arrays, decode_json, encode_arrays, encode_json

TENSORS = {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(7), "bits": torch.tensor([1, 255], dtype=torch.uint8)}


def test_arrays_round_trip_with_one_metadata_key(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(encode_arrays(TENSORS, {"kind": "test", "list": [1, 2]}))
    tensors, meta = decode_arrays(path.read_bytes(), path)
    assert meta == {"kind": "test", "list": [1, 2]}
    assert all(torch.equal(tensors[name], TENSORS[name]) and tensors[name].dtype == TENSORS[name].dtype for name in TENSORS)
    with safe_open(path, "pt") as file:
        assert list(file.metadata()) == ["swamp"]


def test_arrays_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    names = [f"layer-{index:02d}" for index in range(40)]
    content = encode_arrays({name: torch.zeros(1) for name in reversed(names)}, {})
    assert list(decode_arrays(content, tmp_path)[0]) == names


def test_bytes_do_not_depend_on_the_process() -> None:
    expression = "encode_arrays({'b': torch.ones(3), 'a': torch.zeros(2)}, {'x': 1, 'y': [2], 'z': {'q': 1}})"
    code = f"import sys, torch; from swamp.store.formats import encode_arrays; sys.stdout.buffer.write({expression})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": "1"})
    assert other.stdout == eval(expression)  # this process hashes strings with another seed


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_altered_array_file_is_ever_used(tmp_path: Path, data: st.DataObject) -> None:
    """Any flipped byte or truncation is noticed, or changes nothing that is read."""
    good = encode_arrays(TENSORS, {"kind": "test"})
    path = tmp_path / "a.safetensors"
    if data.draw(st.booleans()):
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    else:
        at = data.draw(st.integers(0, len(good) - 1))
        bad = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    path.write_bytes(bad)
    try:
        tensors, meta = decode_arrays(path.read_bytes(), path)
    except Damaged:
        return
    assert meta == {"kind": "test"}
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_altered_json_file_is_ever_used(tmp_path: Path, data: st.DataObject) -> None:
    value = {"loss": 0.1, "list": [1, 2, "three"]}
    good = encode_json(value)
    at = data.draw(st.integers(0, len(good) - 1))
    path = tmp_path / "a.json"
    path.write_bytes(good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :])
    try:
        found = decode_json(path.read_bytes(), path)
    except Damaged:
        return
    assert found == value


def test_json_of_other_shapes_is_damaged(tmp_path: Path) -> None:
    for text in ("[]", "{}", "3", '{"checksum": "x", "value": NaN}', ""):
        path = tmp_path / "a.json"
        path.write_text(text)
        with pytest.raises(Damaged):
            decode_json(path.read_bytes(), path)


def test_a_failed_write_leaves_the_old_file_and_no_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, scratch = tmp_path / "a", tmp_path / "work"
    Folder(tmp_path).write("a", b"old", Folder(scratch))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        Folder(tmp_path).write("a", b"new", Folder(scratch))
    assert path.read_bytes() == b"old"
    assert list(scratch.iterdir()) == []


def test_writing_syncs_before_and_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    events: list[str] = []
    real_sync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(
        os,
        "fsync",
        lambda d: (events.append("directory" if os.path.isdir(f"/proc/self/fd/{d}") else "file"), real_sync(d))[1],
    )
    monkeypatch.setattr(os, "replace", lambda a, b, **fds: (events.append("rename"), real_replace(a, b, **fds))[1])
    Folder(tmp_path).write("a", b"x", Folder(tmp_path / "work"))
    assert events == ["file", "rename", "directory"]


def test_os_errors_are_explained() -> None:
    assert "no space left to write /x; what was stored is sound" in files.explain_os_error(OSError(errno.ENOSPC, "No space", "/x"))
    assert files.explain_os_error(PermissionError(errno.EACCES, "Permission denied", "/x")) == "cannot use /x: Permission denied"


def test_encoded_json_is_readable() -> None:
    assert json.loads(encode_json({"b": 1, "a": [0.5]}))["value"] == {"a": [0.5], "b": 1}
