"""Damaged and forged files of networks, loaded and run by the runtime under sanitizers.

python -m tests.support.hostile_programs COUNT SEED [avx512|avx2|generic]     loads and runs so many files, and prints what became of them
"""

from __future__ import annotations

import contextlib
import copy
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import torch
from swamp_runtime import library
from torch import nn
from torch.nn import functional as F

from tests.support.files import int8_file, sparse_file
from tests.support.hostile import GOOD_PROGRAM, assembled, bend, mutate, parts
from tests.support.networks import FUNCTIONS, IMAGE, NETWORKS, SEQUENCE, Function, given, normal, transposed_layers

DRIVER = Path(__file__).with_name("hostile_driver.cpp")
SANITIZERS = ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SMALL = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 250)  # numbers that a sound program may hold
LARGE = (-1, 255, 1000, 2047, 2048, 2049, 4095, 4096, 4097, 65535, 1 << 20, 1 << 24, (1 << 24) + 1, 1 << 31, 1 << 40, 10**17)


def build_driver(directory: Path) -> Path:
    """Compile the driver with the runtime's source; this takes a minute."""
    target = directory / "driver"
    sources = [(library.SOURCES / f"{unit}.cpp", ()) for unit in library.UNITS if unit != "api"]
    options = (*SANITIZERS, "-I", str(library.SOURCES))
    library.link(library.compiler(), [(DRIVER, ()), *sources, *library.kernels()], target, options)
    return target


# -- sound files -------------------------------------------------------------------------------------------------------------------------


def every_operation(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> Any:
    y = F.conv2d(x, w, None, 2, 2, 1, 2)
    y = F.interpolate(F.max_pool2d(y, 3, 1, 1), scale_factor=2, mode="bilinear") + F.avg_pool2d(F.interpolate(y, scale_factor=2), 3, 1, 1)
    z = torch.cat([y[:, ::2], y], 1).flatten(1)
    return F.linear(z, v).softmax(1), F.group_norm(y, 2), y.amax((2, 3))


@cache
def sound_files() -> list[bytes]:
    """Small files that hold every operation, of every kind of input, with float and 8-bit weights."""
    torch.manual_seed(0)
    chosen: tuple[str, ...] = (
        "resnet",
        "mlp",
        "mobilenet",
        "unet",
        "vit",
        "gpt",
        "bert",
        "encoder with padding",
        "audio",
        "roberta",
        "shared heads by gqa",
    )
    chosen += ("several inputs and outputs",)
    files = [sparse_file(NETWORKS[name][0](), NETWORKS[name][1][0], **NETWORKS[name][2]) for name in chosen]
    for name in ("conv with dilation", "attention of pixels", "some tokens", "conv of tokens", "in place"):
        function, x, tensors, _ = FUNCTIONS[name]
        files.append(sparse_file(Function(function, **tensors), given(x)))
    files.append(sparse_file(Function(every_operation, w=normal(4, 2, 3, 3), v=normal(3, 6 * 64)), given(IMAGE)))
    files.append(sparse_file(nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()), given(normal(2, 8, 5, 5)), 0.95))  # nearly dense
    convolutions = [
        nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, 2, 1),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 4, (1, 5), padding=(0, 2)),
    ]
    files.append(int8_file(nn.Sequential(*convolutions), given(IMAGE), free_size=True)[0])
    files += [sparse_file(transposed_layers(), given(SEQUENCE)), int8_file(transposed_layers(), given(SEQUENCE))[0]]
    files.append(int8_file(nn.Sequential(nn.Linear(8, 9), nn.Tanh(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 3)), given(SEQUENCE))[0])
    return [*files, GOOD_PROGRAM]


# -- mutations ---------------------------------------------------------------------------------------------------------------------------


def _leaf(tree: Any, draw: random.Random) -> tuple[Any, Any] | None:
    """Return a random table or list that holds no other, and one of its keys."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return None
        key = draw.choice(keys)
        if not isinstance(tree[key], (dict, list)) or not tree[key]:
            return tree, key
        tree = tree[key]


def _renumber(meta: dict[str, Any], draw: random.Random) -> None:
    """Set one number of the program to another that may well be allowed."""
    found = _leaf(meta["program"], draw)
    if found and type(found[0][found[1]]) in (int, float, type(None)):
        found[0][found[1]] = draw.choice(SMALL if draw.random() < 0.7 else LARGE)


def _rewire(meta: dict[str, Any], draw: random.Random) -> None:
    """Let a node read other values, or more or fewer of them."""
    number = draw.randrange(len(meta["program"]["nodes"]))
    node, below = meta["program"]["nodes"][number], len(meta["program"]["inputs"]) + number
    count = max(len(node["in"]) + draw.choice((0, 0, 0, 1, -1)), 0)
    node["in"] = [draw.randrange(below) for _ in range(count)]


def _exchange(meta: dict[str, Any], draw: random.Random) -> None:
    """Give a node the operation or an attribute of another one."""
    one, other = draw.choices(meta["program"]["nodes"], k=2)
    if draw.random() < 0.5:
        values, op = one["in"], copy.deepcopy(other)
        one.clear()
        one.update(op, **{"in": values})
    elif shared := sorted(set(one) & set(other) - {"in", "op"}):
        name = draw.choice(shared)
        one[name] = copy.deepcopy(other[name])


def _repeat(meta: dict[str, Any], draw: random.Random) -> None:
    """Add a copy of a node to the end, and read it."""
    program = meta["program"]
    program["nodes"].append(copy.deepcopy(draw.choice(program["nodes"])))
    draw.choice(program["outputs"])["value"] = len(program["inputs"]) + len(program["nodes"]) - 1


def _reshape(meta: dict[str, Any], draw: random.Random) -> None:
    """Give a tensor another shape with as many numbers, or the shape of another one, or a size or kind to an input."""
    entries = meta["pruned"] + meta["dense"]
    if draw.random() < 0.4 or not entries:  # A network may have no tensors.
        entry = draw.choice(meta["program"]["inputs"])
        if draw.random() < 0.3:
            entry["kind"] = draw.choice(("image", "vector", "sequence", "signal", "tokens"))
        else:
            entry["size"][draw.randrange(3)] = draw.choice((None, *SMALL, *LARGE))
        return
    shape, other = (entry[1 if len(entry) == 5 else 2] for entry in draw.choices(entries, k=2))
    action = draw.randrange(4)
    if action == 0:
        draw.shuffle(shape)
    elif action == 1:
        shape.insert(draw.randint(0, len(shape)), 1)
    elif action == 2 and len(shape) > 1:
        shape[0] *= shape.pop()
    else:
        shape[:] = other


FORGERIES = (_renumber, _renumber, _renumber, _rewire, _exchange, _repeat, _reshape)


def forged(good: bytes, draw: random.Random) -> bytes:
    """Return a file with a right checksum whose program or tensors were changed, mostly in ways that leave it readable."""
    header, stored, data = parts(good)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        draw.choice(FORGERIES)(stored["meta"], draw)
    if draw.random() < 0.1:
        bend(stored["meta"]["program"], draw)
    if data and draw.random() < 0.1:
        at = draw.randrange(len(data))
        data = data[:at] + draw.randbytes(1) + data[at + 1 :]
    return assembled(header, stored, data, honest=True)


def hostile(files: list[bytes], draw: random.Random) -> bytes:
    good = draw.choice(files)
    return forged(good, draw) if draw.random() < 0.75 else mutate(good, draw)


# -- the driver --------------------------------------------------------------------------------------------------------------------------


def fuzz(driver: Path, count: int, seed: int, instructions: str = "avx512", kept: Path | None = None) -> Counter[str]:
    """Load and run so many files, and count what became of them: "run", or the reason of each refusal without the values in it.

    Whatever a sanitizer finds is an AssertionError; the file is kept then.
    """
    environment = {**os.environ, "SWAMP_INSTRUCTIONS": instructions, "UBSAN_OPTIONS": "print_stacktrace=1"}
    sound_files()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment)
        contents: dict[int, bytes] = {}
        writer = threading.Thread(target=_feed, args=(process.stdin, contents, count, random.Random(seed)))
        writer.start()
        outcomes, number = Counter[str](), 0
        for line in process.stdout or ():
            contents.pop(number)
            outcomes[" ".join(word for word in line.decode(errors="replace").split() if word.isalpha())[:80]] += 1
            number += 1
        writer.join()
        if process.stdout:
            process.stdout.close()
        if process.wait() or number < count:
            place = (kept or Path(tempfile.gettempdir())) / f"hostile-{seed}-{number}.swamp"
            place.write_bytes(contents.get(number, b""))
            errors.seek(0)
            raise AssertionError(f"file {number} of seed {seed}, kept as {place}:\n" + errors.read().decode(errors="replace")[:6000])
    return outcomes


def _feed(pipe: Any, contents: dict[int, bytes], count: int, draw: random.Random) -> None:
    files = sound_files()
    with contextlib.suppress(BrokenPipeError), pipe:  # A driver that has ended says why.
        for number in range(count):
            contents[number] = content = hostile(files, draw)
            pipe.write(len(content).to_bytes(4, "little") + content)


if __name__ == "__main__":
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        driver = Path(os.environ["DRIVER"]) if "DRIVER" in os.environ else build_driver(Path(folder))
        total = fuzz(driver, int(sys.argv[1]), int(sys.argv[2]), (sys.argv[3:] or ["avx512"])[0])
    print(f"{total.total():,} files in {time.monotonic() - begin:.0f} s: {total['run']:,} run")
    for reason, times in total.most_common():
        print(f"{times:>10,}  {reason}")
