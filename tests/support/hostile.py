"""Damaged and forged sparse files: mutations of a good file, with or without a matching checksum.

python -m tests.support.hostile COUNT SEED [FORMAT]     spoils and reads so many files, and prints what became of them
"""

from __future__ import annotations

import copy
import json
import random
import sys
import time
from collections import Counter
from typing import Any

import torch

from swamp.core.mask import Mask
from swamp.core.state import State
from swamp.export import reader
from swamp.export.formats.sparse import encode
from swamp.export.program import NetworkProgram

NUMBERS: list[Any] = [
    0,
    1,
    -1,
    2,
    7,
    8,
    255,
    256,
    1 << 31,
    1 << 40,
    1 << 59,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    10**18,
    10**30,
    1.0,
    0.5,
    1e300,
    None,
    True,
    "3",
    [],
    {},
]
WORDS = ["", "bits", "gaps", "values", "positions", "dense.F32", "F32", "F16", "BF16", "I64", "U8", "BOOL", "\ud800", "x" * 500]


def parts(content: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Return the header, the stored metadata and the data of a good file."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["swamp"]), content[8 + length :]


def assembled(header: dict[str, Any], stored: dict[str, Any], data: bytes, honest: bool) -> bytes:
    """Return the bytes of a file; an honest file has the checksum of its content, as far as that can be computed."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5_000)  # Whoever forges a file can nest it deeper than its reader.
    try:
        return _assembled(dict(header), dict(stored), data, honest)
    finally:
        sys.setrecursionlimit(limit)


def _assembled(header: dict[str, Any], stored: dict[str, Any], data: bytes, honest: bool) -> bytes:
    if honest:
        try:
            streams = {
                name: reader.Stream(e["dtype"], e["shape"], memoryview(data)[e["data_offsets"][0] : e["data_offsets"][1]])
                for name, e in header.items()
                if name != "__metadata__"
            }
            stored["checksum"] = reader.checksum(streams, stored["meta"])
        except (TypeError, KeyError, ValueError, IndexError):
            pass
    if isinstance(header.get("__metadata__"), dict) and "swamp" in header["__metadata__"]:
        header["__metadata__"] = {"swamp": json.dumps(stored, sort_keys=True, separators=(",", ":"))}  # the one text that is hashed
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def mutate(good: bytes, draw: random.Random) -> bytes:
    """Return the file changed in a random way."""
    if draw.random() < 0.4:
        return bytes(torn(bytearray(good), draw))
    header, stored, data = copy.deepcopy(parts(good))
    spoiled = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        program = stored["meta"].get("program")
        target = draw.choice([stored["meta"], stored["meta"], header, spoiled, *[program] * 4 * isinstance(program, dict)])
        if target is spoiled:
            for _ in range(draw.randint(1, 4) if spoiled else 0):  # A network may have no tensors.
                spoiled[draw.randrange(len(spoiled))] = draw.choice([0, 1, 254, 255, draw.randrange(256)])
        else:
            bend(target, draw)
    return assembled(header, stored, bytes(spoiled), honest=draw.random() < 0.9)


def torn(content: bytearray, draw: random.Random) -> bytearray:
    """Cut off, change or extend any file at random."""
    kind = draw.randrange(5)
    at = draw.randrange(len(content))
    if kind == 0:
        return content[:at]
    if kind == 1:
        content[at] ^= draw.randint(1, 255)
    elif kind == 2:
        content[at:at] = draw.randbytes(draw.randint(1, 16))
    elif kind == 3:
        end = min(at + draw.randint(1, 64), len(content))
        content[at:end] = content[draw.randrange(len(content)) :][: draw.randint(0, 64)]
    else:
        content[:8] = draw.choice([0, 7, 1 << 40, len(content), len(content) - 8, (1 << 64) - 1]).to_bytes(8, "little")
    return content


def bend(tree: Any, draw: random.Random) -> None:
    """Change one random entry of nested dicts and lists."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return
        key = draw.choice(keys)
        if isinstance(tree[key], (dict, list)) and draw.random() < 0.8:
            tree = tree[key]
            continue
        break
    action = draw.randrange(7)
    if action == 5 and isinstance(tree, list):
        tree.insert(key, draw.choice([0, 1 << 59, 1 << 62, (1 << 63) - 1, draw.choice(NUMBERS)]))  # A side of 0 may stand beside it.
    elif action == 6:
        tree[key] = nested(tree[key], draw.choice([3, 60, 200, 950, 980, 990]))  # around Python's own limit of 1,000
    elif action == 0:
        del tree[key]
    elif action == 1 and isinstance(tree, list):
        tree.insert(key, tree[key])
    elif action == 2:
        tree[key] = draw.choice(WORDS)
    elif isinstance(tree[key], int) and action == 3:
        tree[key] += draw.choice([-8, -1, 1, 8, 255])
    else:
        tree[key] = draw.choice(NUMBERS)


def nested(value: Any, depth: int) -> Any:
    """Return the value inside so many lists."""
    for _ in range(depth):
        value = [value]
    return value


def small() -> tuple[State, Mask]:
    """A layer for each code, one without survivors, and dense tensors of three types, one of them without elements."""
    draw = torch.Generator().manual_seed(0)
    shapes = {"half": (4, 9), "thin": (40, 30), "none": (600,)}
    parameters = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()} | {"bias": torch.randn(5, generator=draw)}
    masks = {"half": torch.rand(4, 9, generator=draw) < 0.5, "thin": torch.rand(40, 30, generator=draw) < 0.01}
    mask = Mask({**masks, "none": torch.zeros(600, dtype=torch.bool)})
    buffers = {"mean": torch.randn(3, generator=draw), "steps": torch.tensor(7), "flag": torch.tensor([True]), "void": torch.zeros(2, 0)}
    return mask.apply(State(parameters, buffers)), mask


def small_program() -> NetworkProgram:
    """A program with attributes of all kinds over the tensors of `small`."""
    nodes: list[dict[str, Any]] = [
        {"op": "linear", "in": [0], "weight": "half", "bias": None, "input": [0.25, 64]},
        {"op": "activation", "in": [2], "kind": "elu", "slope": 0.5},
        {"op": "pixels", "in": [3], "start": -1, "count": None},
        {"op": "channels", "in": [3], "start": 0, "count": 2, "step": 2},
        {"op": "concat", "in": [3, 5], "axis": "channels"},
        {"op": "embedding", "in": [1], "weight": "thin"},
        {"op": "positions", "in": [7], "weight": "thin", "offset": 1},
        {"op": "attention", "in": [7, 8, 7, 1], "heads": 2, "causal": True, "scale": 0.125},
        {"op": "constant", "in": [], "weight": "program:bias"},
        {"op": "batch_norm", "in": [4], "weight": None, "bias": "bias", "mean": "bias", "variance": "bias", "eps": 1e-05},
        {"op": "avg_pool", "in": [4], "kernel": [1, 2], "stride": [1, 2], "padding": [0, 0], "include_padding": False},
        {"op": "upsample", "in": [12], "factor": [2, 2], "mode": "bilinear", "align_corners": False},
    ]
    inputs = [{"name": "x", "kind": "sequence", "size": [9, 1, None]}, {"name": "ids", "kind": "tokens", "size": [1, 1, 7]}]
    outputs = [{"name": "y", "value": 13, "kind": "image"}, {"name": "z", "value": 4, "kind": "vector"}]
    return NetworkProgram(
        {"inputs": inputs, "nodes": nodes, "outputs": outputs}, {"program:bias": torch.ones(4), "program:matrix": torch.ones(2, 2)}
    )


GOOD = encode(*small(), about={"notes": "ä"})
GOOD_PROGRAM = encode(*small(), "int8", {"notes": "ä"}, small_program())


def fuzz(count: int, seed: int, good: bytes = GOOD) -> Counter[str]:
    """Spoil and read so many files, and count what became of them: the reason of each refusal, without the values in it, or "read".

    A file that is read must be harmless: no error other than `Malformed`, and no more memory than 256 weights of 5 bytes for each byte of
    the file.
    """
    draw, outcomes = random.Random(seed), Counter[str]()
    for number in range(count):
        content = mutate(good, draw)
        try:
            found = reader.decode(content)
        except reader.Malformed as error:
            outcomes[" ".join(word for word in str(error).split() if word.isalpha())] += 1
            continue
        except Exception as error:
            raise AssertionError(f"file {number} of seed {seed}: {type(error).__name__}: {error}") from error
        outcomes["read"] += 1
        assert sum(a.nbytes for a in (*found.tensors.values(), *found.masks.values())) <= 1280 * len(content)
        assert all(found.tensors[name].shape == layer.shape for name, layer in found.masks.items())
        assert all(not found.tensors[name][~layer].any() for name, layer in found.masks.items())
    return outcomes


if __name__ == "__main__":
    begin, total, good = time.monotonic(), Counter[str](), GOOD_PROGRAM if sys.argv[3:] == ["2"] else GOOD
    for part in range(-(-int(sys.argv[1]) // 10_000)):
        total += fuzz(min(10_000, int(sys.argv[1]) - 10_000 * part), int(sys.argv[2]) + part, good)
        print(f"{total.total():,} files in {time.monotonic() - begin:.0f} s: {total['read']:,} read", flush=True)
    for reason, times in total.most_common():
        print(f"{times:>10,}  {reason}")
