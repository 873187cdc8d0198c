from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swamp.export import reader
from swamp.export.reader import Malformed, decode
from tests.support.hostile import GOOD, GOOD_PROGRAM, assembled, fuzz, nested, parts, small, small_program


def test_reads_back_every_tensor_and_mask() -> None:
    state, mask = small()
    found = decode(GOOD)
    for name, tensor in {**state.parameters, **state.buffers}.items():
        assert found.tensors[name].shape == tuple(tensor.shape)
        assert np.array_equal(found.tensors[name], tensor.numpy())
    assert all(np.array_equal(found.masks[name], layer.numpy()) for name, layer in mask.layers.items())
    assert found.about == {"notes": "ä"}
    codes = {entry[0]: entry[2] for entry in parts(GOOD)[1]["meta"]["pruned"]}
    assert codes == {"half": "bits", "thin": "gaps", "none": "gaps"}


def test_reads_a_program_and_8_bit_values() -> None:
    state, mask = small()
    found = decode(GOOD_PROGRAM)
    assert found.program == small_program().program
    assert found.tensors["program:bias"].tolist() == [1, 1, 1, 1]
    assert found.scales.keys() == mask.layers.keys()
    for name, scales in found.scales.items():
        rows = np.abs(state.parameters[name].numpy().reshape(len(scales), -1)).max(1)
        assert np.allclose(scales, np.where(rows > 0, rows / 127, 1.0))
        whole = found.tensors[name].reshape(len(scales), -1) / scales[:, None]
        assert np.allclose(whole, whole.round(), atol=1e-4)
        assert np.all(np.abs(whole) < 127.01)
        apart = np.abs(found.tensors[name] - state.parameters[name].numpy()).reshape(len(scales), -1)
        assert np.all(apart <= scales[:, None] / 2 + 1e-7)
    assert decode(GOOD).program is None
    assert decode(GOOD).scales == {}


def test_reads_alone_with_numpy_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(Path(reader.__file__).read_text())
    (tmp_path / "model.swamp").write_bytes(GOOD)
    code = "import sys, alone; print(sorted(alone.read('model.swamp').tensors)); assert not {'torch', 'swamp'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": ""})
    assert done.stdout.strip() == "['bias', 'flag', 'half', 'mean', 'none', 'steps', 'thin', 'void']", done.stderr


def forged(**changes: object) -> bytes:
    """A good file with entries of its meta replaced, and the checksum that belongs to it."""
    header, stored, data = parts(GOOD)
    stored["meta"] |= changes
    return assembled(header, stored, data, honest=True)


def dense_entry(at: int, place: int, value: object) -> bytes:
    dense = parts(GOOD)[1]["meta"]["dense"]
    dense[at][place] = value
    return forged(dense=dense)


def entry(at: int, place: int, value: object) -> bytes:
    pruned = parts(GOOD)[1]["meta"]["pruned"]
    pruned[at][place] = value
    return forged(pruned=pruned)


def streams(change: object, **entries: object) -> bytes:
    header, stored, data = parts(GOOD)
    header[str(change)] |= entries
    return assembled(header, stored, data, honest=True)


def program(*path: object, to: object) -> bytes:
    """A good file of format 2 with an entry of its program replaced, or left out if it is to be `...`."""
    header, stored, data = parts(GOOD_PROGRAM)
    *outer, last = ["meta", "program", *path]
    place: Any = stored
    for key in outer:
        place = place[key]
    if to is ...:
        del place[last]
    else:
        place[last] = to
    return assembled(header, stored, data, honest=True)


def integers(**entries: object) -> bytes:
    """A good file of format 2 with numbers of a stream replaced."""
    header, stored, data = parts(GOOD_PROGRAM)
    changed = bytearray(data)
    for name, value in entries.items():
        assert isinstance(value, bytes)
        begin = header[name]["data_offsets"][0]
        changed[begin : begin + len(value)] = value
    return assembled(header, stored, bytes(changed), honest=True)


def assembled_as_format_1() -> bytes:
    header, stored, data = parts(GOOD_PROGRAM)
    stored["meta"] = {**stored["meta"], "format": 1}
    del stored["meta"]["program"]
    return assembled(header, stored, data, honest=True)


OFFSETS = parts(GOOD)[0]["values"]["data_offsets"]
HOSTILE = {
    "empty": (b"", "cut off"),
    "a giant header": ((1 << 63).to_bytes(8, "little") + GOOD[8:], "cut off or too long"),
    "a truncated file": (GOOD[:-3], "outside of the file"),
    "data of no stream": (GOOD + b"x", "leave gaps"),
    "a flipped bit": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "checksum"),
    "a format to come": (forged(format=3), "format is 3, and this reader knows 1 and 2"),
    "deep nesting": ((200_000).to_bytes(8, "little") + b"[" * 200_000, "no JSON"),
    "a huge shape": (entry(1, 1, [1 << 40, 1 << 19]), "cannot have"),
    "a huge shape of no survivors": (entry(2, 1, [10**12]), "cannot have"),
    "a side too large beside an empty one": (entry(2, 1, [0, 1 << 62]), "not described"),
    "a dense side too large beside an empty one": (dense_entry(0, 2, [0, 1 << 62]), "not described"),
    "a shape that only numpy finds too large": (dense_entry(0, 2, [0, 1 << 60]), "not described"),
    "a format of control characters": (forged(format="\x1b[2J\n"), r"format is '\\x1b\[2J\\n'"),
    "a negative shape": (entry(1, 1, [-40, -30]), "not described"),
    "a fractional count": (entry(1, 3, 7.5), "not described"),
    "a count that is none": (entry(1, 3, None), "not described"),
    "a wrong count": (entry(1, 3, 1), "another number of survivors"),
    "an unknown code": (entry(1, 2, "lzma"), "not described"),
    "a name twice": (entry(1, 0, "half"), "named twice"),
    "a name of a dense tensor": (entry(1, 0, "bias"), "named twice"),
    "overlapping streams": (streams("values", data_offsets=[0, OFFSETS[1] - OFFSETS[0]]), "overlap"),
    "a stream beyond the end": (streams("values", data_offsets=[10**9, 10**9 + OFFSETS[1] - OFFSETS[0]]), "outside"),
    "a stream of another length": (streams("values", shape=[1]), "length"),
    "NaN": (GOOD.replace(b"[600]", b"[NaN]"), "NaN"),
    "a program in format 1": (forged(program=None), "other entries"),
    "8-bit values in format 1": (assembled_as_format_1(), "wrong type|streams are not"),
    "a program that is no table": (program(to=[]), "its program has other entries"),
    "a program without inputs": (program("inputs", to=...), "its program has other entries"),
    "nodes that are no list": (program("nodes", to={}), "no lists"),
    "an unknown operation": (program("nodes", 0, "op", to="exec"), "unknown operation"),
    "an operation that is a list": (program("nodes", 0, "op", to=["linear"]), "unknown operation"),
    "a node that is none": (program("nodes", 0, to="linear"), "unknown operation"),
    "a missing attribute": (program("nodes", 1, "slope", to=...), "node activation of its program has other attributes"),
    "an attribute too many": (program("nodes", 1, "input", to=[1.0, 0]), "node activation of its program has other attributes"),
    "a value that comes later": (program("nodes", 0, "in", to=[2]), "reads other values than it can"),
    "a negative value": (program("nodes", 0, "in", to=[-1]), "reads other values than it can"),
    "a truth as a value": (program("nodes", 0, "in", to=[True]), "reads other values than it can"),
    "too many values": (program("nodes", 0, "in", to=[0, 1]), "reads other values than it can"),
    "no values to join": (program("nodes", 4, "in", to=[]), "reads other values than it can"),
    "an unknown tensor": (program("nodes", 0, "weight", to="nothing"), "weight of a node linear of its program is no tensor"),
    "a missing weight": (program("nodes", 0, "weight", to=None), "weight of a node linear of its program is no tensor"),
    "a weight of other dimensions": (program("nodes", 0, "weight", to="bias"), "weight of a node linear of its program is no tensor"),
    "a weight of integers": (program("nodes", 9, "mean", to="steps"), "mean of a node batch_norm of its program is no tensor"),
    "an activation without a slope": (program("nodes", 1, "slope", to=None), "a slope without need, or none"),
    "an unknown activation": (program("nodes", 1, "kind", to="selu"), "kind of a node activation"),
    "a fractional number of channels": (program("nodes", 3, "count", to=1.5), "count of a node channels"),
    "a stride of 0": (program("nodes", 10, "stride", to=[0, 1]), "stride of a node avg_pool"),
    "a number for a truth": (program("nodes", 7, "causal", to=1), "causal of a node attention"),
    "a text for a number": (program("nodes", 7, "scale", to="1"), "scale of a node attention"),
    "another zero": (program("nodes", 0, "input", to=[0.25, 1]), "input of a node linear"),
    "a negative scale": (program("nodes", 0, "input", to=[-0.25, 0]), "input of a node linear"),
    "an 8-bit input of float weights": (program("nodes", 0, "weight", to="program:matrix"), "input of a node linear"),
    "an unknown kind of input": (program("inputs", 0, "kind", to="video"), "an input is not described"),
    "tokens of two channels": (program("inputs", 1, "size", to=[2, 1, 7]), "an input is not described"),
    "a free number of channels": (program("inputs", 0, "size", to=[None, 1, 7]), "an input is not described"),
    "a giant input": (program("inputs", 0, "size", to=[1 << 40, 1, 1 << 40]), "an input is not described"),
    "two inputs of one name": (program("inputs", 0, "name", to="ids"), "two of one name"),
    "no outputs": (program("outputs", to=[]), "no outputs"),
    "an output of no value": (program("outputs", 0, "value", to=14), "an output is not described"),
    "an output of tokens": (program("outputs", 0, "kind", to="tokens"), "an output is not described"),
    "the value -128": (integers(values=b"\x80"), "not all from -127 to 127"),
    "a scale of 0": (integers(scales=bytes(4)), "scales are not all positive"),
    "an infinite scale": (integers(scales=b"\x00\x00\x80\x7f"), "scales are not all positive"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_gets_one_sentence_and_little_memory(name: str, tmp_path: Path) -> None:
    content, why = HOSTILE[name]
    path = tmp_path / "model.swamp"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match=why) as error:
            reader.read(path)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(content) + (1 << 20)
    finally:
        tracemalloc.stop()
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_header_with_duplicate_names_is_refused() -> None:
    header, _, data = parts(GOOD)
    text = json.dumps(header)[:-1] + ', "values": ' + json.dumps(header["values"]) + "}"
    with pytest.raises(Malformed, match="twice"):
        decode(len(text).to_bytes(8, "little") + text.encode() + data)


def test_no_depth_of_nesting_gives_another_error() -> None:
    """Some texts can be parsed, but not be written again for the checksum, within Python's limit of recursion."""
    decode(forged(about={"a": nested(0, 61)}))
    for depth in [62, *range(850, 1010, 3)]:
        with pytest.raises(Malformed, match=r"nested more than 64 deep|no JSON"):
            decode(forged(about={"a": nested(0, depth)}))


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_only_a_regular_file_is_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.swamp"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(Malformed, match="no regular file"):
        reader.read(path)


def test_too_little_memory_is_reported_as_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "zeros", full)
    with pytest.raises(reader.TooLarge, match="more memory than there is"):
        decode(GOOD)


def test_what_would_not_fit_is_refused_before_it_is_made() -> None:
    with pytest.raises(Malformed, match="more than the 100 that are allowed"):
        decode(GOOD, max_decoded=100)


def test_a_file_that_is_larger_than_its_network_is_not_even_read(tmp_path: Path) -> None:
    path = tmp_path / "model.swamp"
    path.write_bytes(GOOD)
    os.truncate(path, 1 << 36)  # a hole, which takes no disk space
    with pytest.raises(Malformed, match="more than the 10000 that its tensors may take"):
        reader.read(path, max_decoded=10_000)


def test_three_thousand_spoiled_files() -> None:
    assert 150 < fuzz(3_000, seed=0)["read"] < 1_000  # forged values are values: some files must be read
    assert 100 < fuzz(3_000, seed=0, good=GOOD_PROGRAM)["read"] < 1_000


@pytest.mark.slow
def test_ten_thousand_spoiled_files() -> None:
    assert 500 < fuzz(10_000, seed=1)["read"] < 3_000
    assert 300 < fuzz(10_000, seed=1, good=GOOD_PROGRAM)["read"] < 3_000
